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
def settings_of_all():
    """Settings of all processes of `pair_of_file` and `single_of_file`, for a file to replace."""
    return {}


def started(dispatchers, settings):
    """A cluster for the tests of one file; all of it must end well."""
    with memory_folder() as folder:
        cluster = Cluster(folder, dispatchers, settings, node_settings=settings)
        try:
            yield cluster.start()
            whole(cluster).stop()
        finally:
            cluster.discard()


def whole(cluster):
    """Makes a cluster whole again, whatever a test has left of it."""
    cluster.tier.clock.go()
    for process in [*cluster.nodes.values(), *cluster.dispatchers]:
        if process.is_running():
            process.resume()
    cluster.tier.start()
    for dispatcher in cluster.dispatchers:
        if not dispatcher.is_running():
            dispatcher.start()
    return cluster


@pytest.fixture(scope="module")
def pair_of_file(settings_of_all):
    yield from started(2, settings_of_all)


@pytest.fixture(scope="module")
def single_of_file(settings_of_all):
    yield from started(1, settings_of_all)


@pytest.fixture
def pair(pair_of_file):
    """Two dispatchers in front of one tier, which the tests of one file share."""
    return whole(pair_of_file)


@pytest.fixture
def single(single_of_file):
    """One dispatcher in front of a tier, which the tests of one file share."""
    return whole(single_of_file)


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))
