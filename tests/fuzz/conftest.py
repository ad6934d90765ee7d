"""Fixtures of the tests with hostile input."""

import pytest

from harness import Server, memory_folder


@pytest.fixture
def fuzzed():
    with memory_folder() as folder, Server(folder) as server:
        server.start()
        yield server
        assert server.client().get("/healthz").status == 200
        server.stop()
        assert not server.logged("ERROR"), server.logged("ERROR")[:5]
