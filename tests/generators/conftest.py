"""Fixtures of the tests of generated clients."""

import pytest

from harness import Server, memory_folder


@pytest.fixture(scope="module")
def server():
    with memory_folder() as folder, Server(folder) as server:
        server.start()
        document = server.client().get("/openapi.json")
        # Generators read it whole, and people open it in a browser.
        assert document.status == 200 and len(document.body) < 440_000, len(document.body)
        (folder / "openapi.json").write_bytes(document.body)
        yield server
        server.stop()
