"""Fixtures of the tests of quotas.

The clocks of their servers stand still: nothing comes back to a bucket but what the test lets come by advancing them.
"""

import pytest

from harness import Server, memory_folder
from quotas import make_token, started


@pytest.fixture(scope="module")
def server():
    """A server with default settings, for the tests of one file; it must end well."""
    with memory_folder() as path, Server(path) as server:
        yield started(server)
        server.clock.go()
        server.stop()


@pytest.fixture(scope="module")
def timeless():
    """A server on which the time of the store costs nothing, so that prices are exact."""
    with memory_folder() as path, Server(path, {"cost": {"latency_ms": 0}}) as server:
        yield started(server)
        server.clock.go()
        server.stop()


class Closed:
    """A server that asks for tokens, with an administrator."""

    def __init__(self, server):
        self.server = server
        self.token = make_token(server.client(), "root", "*:*")
        self.root = server.client(token=self.token)

    def namespace(self, name):
        assert self.root.put(f"/admin/v1/namespaces/{name}").status in (200, 201)
        return name

    def caller(self, name, *grants):
        """A connection of another caller."""
        return self.server.client(token=make_token(self.root, name, *grants))


@pytest.fixture
def closed(new_server):
    return Closed(started(new_server()))
