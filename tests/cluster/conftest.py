"""Fixtures of the tests of clusters."""

import pytest

from certificates import Authority
from harness import Cluster, memory_folder


@pytest.fixture
def new_cluster(folder):
    """Makes clusters on one folder; what still runs at the end of the test is killed."""
    clusters = []

    def make(dispatchers=1, settings=None, name="", **more):
        cluster = Cluster(folder / name, dispatchers, settings, **more)
        clusters.append(cluster)
        return cluster

    yield make
    for cluster in clusters:
        cluster.discard()


@pytest.fixture(scope="module")
def pair():
    """Two dispatchers in front of one tier, for the tests of one file; all must end well."""
    with memory_folder() as folder:
        cluster = Cluster(folder, 2)
        try:
            cluster.start()
            yield cluster
            cluster.stop()
        finally:
            cluster.discard()


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))
