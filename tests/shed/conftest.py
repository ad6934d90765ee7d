"""Fixtures of the area."""

import pytest

from crowd import TIGHT, Shard
from held import Commits


@pytest.fixture
def commits():
    commits = Commits()
    yield commits
    commits.close()


@pytest.fixture
def held_server(new_server, commits):
    """Makes servers whose commits can be held, wherever their store is."""

    def make(settings):
        server = new_server(settings, environment=commits.environment())
        for node in server.tier.nodes.values() if server.tier else ():
            node.environment = commits.environment()
        return server.start()

    yield make
    # Whatever is held would not end.
    commits.let_go()


@pytest.fixture
def shard(held_server, commits):
    """A shard with two permits, of a server whose shards all have two."""
    server = held_server(TIGHT)
    return Shard(server, server.namespace(), commits)
