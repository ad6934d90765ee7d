"""Fixtures of the tests of hot keys."""

import pytest

from harness import Server, memory_folder
from hot import WARM


@pytest.fixture(scope="module")
def server():
    """A server on which few reads make a key hot, for the tests of one file; it must end well."""
    with memory_folder() as path, Server(path, WARM | {"cost": {"latency_ms": 0}}) as server:
        server.start()
        yield server
        server.stop()


@pytest.fixture
def still(server):
    """The clock of the server, which stands still but for what the test advances it by."""
    server.clock.stop()
    yield server.clock
    server.clock.go()
