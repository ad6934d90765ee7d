"""Fixtures of the tests of hot keys."""

import pytest

from harness import Server, memory_folder
from hot import WARM


@pytest.fixture(scope="module")
def server():
    """A server on which few reads make a key hot, for the tests of one file; it must end well.

    Its clock stands still: answers that are kept grow old by what a test advances it by, and by nothing else.
    """
    with memory_folder() as path, Server(path, WARM | {"cost": {"latency_ms": 0}}) as server:
        server.start().clock.stop()
        yield server
        server.clock.go()
        server.stop()
