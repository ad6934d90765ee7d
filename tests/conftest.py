"""Fixtures that the areas share."""

import itertools
import pathlib

import pytest

import witness
from clock import Clock
from harness import IS_CASSANDRA, IS_REMOTE, Namespace, Server, memory_folder

NUMBERS = itertools.count(1)
# Where failed tests are noted, by the process that hears of all of them.
FAILED_TO = []


def pytest_configure(config):
    if config.option.failed_to and not hasattr(config, "workerinput"):
        FAILED_TO.append(pathlib.Path(config.option.failed_to))
    config.addinivalue_line("markers", "embedded(reason): about a server with its store in its own process")
    config.addinivalue_line("markers", "redb(reason): about what only a store in files of Umbo's has")
    config.addinivalue_line("markers", "real(component): runs against a component of others, not a double of it")


def pytest_addoption(parser):
    parser.addoption("--failed-to", help="file to which the tests to look at once more are written, one a line")


def pytest_runtest_logreport(report):
    """Notes what failed. A fixture that failed may have failed because of any test of its file: all of it is run again."""
    if report.failed and FAILED_TO:
        again = report.nodeid if report.when == "call" else report.nodeid.split("::")[0]
        with FAILED_TO[0].open("a") as noted:
            print(again, file=noted)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Adds to a failure what the machine and the processes of the test did meanwhile."""
    report = (yield).get_result()
    if report.failed:
        report.sections += witness.seen()


def pytest_sessionstart():
    witness.begin()


def pytest_collection_modifyitems(items):
    """What is about an embedded store has no meaning for shard nodes, nor what is about its files for Cassandra. Real
    components are noted for the report."""
    for item in items:
        for real in item.iter_markers("real"):
            item.user_properties.append(("real", real.args[0]))
        mark = item.get_closest_marker("embedded")
        if IS_REMOTE and mark:
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))
        redb = item.get_closest_marker("redb")
        if IS_CASSANDRA and redb:
            item.add_marker(pytest.mark.skip(reason=redb.args[0]))
        if IS_CASSANDRA:
            item.user_properties.append(("real", "cassandra"))


@pytest.fixture
def folder():
    """An empty folder, in memory where possible."""
    with memory_folder() as path:
        yield path


@pytest.fixture
def new_server(folder):
    """Makes servers on one folder with one clock; what still runs at the end of the test is killed."""
    servers, clock = [], Clock()

    def make(settings=None, name="", **more):
        if "tier" not in more:
            more.setdefault("clock", clock)
        server = Server(folder / name, settings, **more)
        # Who comes after another one finds its shard nodes.
        for other in servers:
            if other.folder == server.folder and server.owns_tier:
                server.tier = other.tier
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.__exit__()


@pytest.fixture(scope="module")
def server():
    """A server with default settings, for the tests of one file; it must end well."""
    with memory_folder() as path, Server(path) as server:
        server.start()
        yield server
        server.stop()


@pytest.fixture
def still(server):
    """The clock of the server, which stands still during the test but where it is advanced."""
    server.stand_still()
    yield server.clock
    server.clock.go()


@pytest.fixture
def ns(server):
    """A namespace nobody else uses."""
    ns = server.namespace(f"ns-{next(NUMBERS)}")
    yield ns
    # A server that ends waits a second for clients to close.
    ns.client.close()


@pytest.fixture
def no_ns(server):
    """A namespace that does not exist."""
    return Namespace(server.client(), "nowhere")
