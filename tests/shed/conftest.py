"""Fixtures of the area."""

import cassandra_node
import pytest

from crowd import TIGHT, Shard
from harness import IS_CASSANDRA
from held import Commits

# A node that answers a write when its commit log is on the disk, and gives up no write meanwhile.
AFTER_SYNC = """
commitlog_sync: batch
commitlog_sync_period: 0ms
write_request_timeout: 600s
cas_contention_timeout: 600s
"""


@pytest.fixture(scope="session")
def commits():
    commits = Commits()
    yield commits
    commits.close()


@pytest.fixture(scope="session")
def held_node(commits):
    """Settings of servers whose commits on a node of Cassandra can be held, where that is what they are on."""
    if not IS_CASSANDRA:
        yield lambda: {}
        return
    with cassandra_node.Cluster(1, AFTER_SYNC, commits.environment()) as cluster:
        # None is given up while time passes.
        yield lambda: {"cassandra": cluster.settings() | {"request_timeout": "1m"}}


@pytest.fixture
def held_server(new_server, commits, held_node):
    """Makes servers whose commits can be held, wherever their store is."""

    def make(settings):
        server = new_server(settings | held_node(), environment=commits.environment())
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
