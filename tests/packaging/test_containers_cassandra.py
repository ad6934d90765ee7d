"""The profile `cassandra` of docker-compose.yml: its parts fit one another and the nodes that tests run, and its
dispatcher serves on a real node. The image of Cassandra itself is not run."""

import re
import tomllib

import pytest
import yaml

import cassandra_node
from harness import Client, Namespace
from package import CONFIG, Image, compose, of_image, settings_of, umbo
from processes import PROJECT, Process, wait_until
from tier import free_port

NODES = ["cassandra-1", "cassandra-2", "cassandra-3"]
OURS = "on-cassandra"
CQL_PORT = 9042


@pytest.fixture(scope="module")
def services():
    return compose("cassandra")["services"]


@pytest.fixture(scope="module")
def ours(services):
    (one,) = of_image(services).values()
    return one


def test_there_are_three_nodes_and_a_dispatcher(services):
    assert sorted(services) == [*NODES, OURS]
    assert {services[name]["image"] for name in NODES} == {"cassandra:5.0"}
    assert services[OURS]["command"] == ["dispatcher"]
    every = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())["services"]
    assert sorted(every) == sorted([*services, *compose()["services"]])


def test_each_node_has_a_volume_and_a_small_heap(services):
    volumes = [volume for name in NODES for volume in services[name]["volumes"]]
    assert volumes == [f"{name}:/var/lib/cassandra" for name in NODES]
    assert sorted(compose("cassandra")["volumes"]) == NODES
    for name in NODES:
        environment = services[name]["environment"]
        assert environment["MAX_HEAP_SIZE"] == "512M" and environment["HEAP_NEWSIZE"] == "128M"
        assert environment["CASSANDRA_SEEDS"] == NODES[0]


def test_nodes_join_one_after_the_other_and_are_awaited(services):
    healthy = {"condition": "service_healthy"}
    awaited = [services[name].get("depends_on", {}) for name in NODES]
    assert awaited == [{}, {NODES[0]: healthy}, {NODES[1]: healthy}]
    assert services[OURS]["depends_on"] == {name: healthy for name in NODES}
    for name in NODES:
        kind, *command = services[name]["healthcheck"]["test"]
        assert kind == "CMD" and command[-1].endswith(f"/127.0.0.1/{CQL_PORT}")


def test_nodes_have_the_settings_of_those_that_tests_run(services):
    tested = (PROJECT / "tests/cassandra/cassandra.yaml.in").read_text()
    for name in NODES:
        allowed, *options = services[name]["environment"]["JVM_EXTRA_OPTS"].split()
        assert allowed == "-Dcassandra.config.allow_system_properties=true"
        found = dict(re.fullmatch(r"-Dcassandra\.settings\.(\w+)=(\w+)", option).groups() for option in options)
        assert sorted(found) == ["paxos_variant", "storage_compatibility_mode"]
        assert all(f"\n{key}: {value}\n" in tested for key, value in found.items())


def test_every_setting_is_accepted_and_fits_the_nodes(ours):
    shown = umbo("config", "show", environment=settings_of(ours["environment"]))
    assert shown.returncode == 0, shown.stderr
    settings = tomllib.loads(shown.stdout)
    assert settings["store"]["engine"] == "cassandra"
    points = [point.strip() for point in settings["cassandra"]["contact_points"].split(",")]
    assert points == [f"{name}:{CQL_PORT}" for name in NODES]
    assert settings["cassandra"]["replication"] == len(NODES)
    # The image's own, as nobody names another one.
    assert settings["cassandra"]["data_center"] == "datacenter1"
    assert int(ours["environment"]["HEALTH_PORT"]) == int(settings["server"]["admin_listen"].rsplit(":", 1)[1])


def test_only_this_machine_reaches_the_dispatcher_and_nobody_the_nodes(services):
    assert services[OURS]["ports"] == ["127.0.0.1:8090:8080"]
    assert not any("ports" in services[name] for name in NODES)
    others = [port for one in compose()["services"].values() for port in one.get("ports", [])]
    assert not any(port.startswith("127.0.0.1:8090:") for port in others)
    one = services[OURS]
    assert one["read_only"] is True and one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]


def test_the_guide_names_a_service_and_its_port():
    guide = (CONFIG / "README.md").read_text()
    assert f"$ docker compose --profile cassandra up --build {OURS}\n$ curl -X PUT http://127.0.0.1:8090/" in guide
    assert f"`docker compose --profile cassandra up {OURS}`" in (PROJECT / "README.md").read_text()


@pytest.mark.real("cassandra")
def test_the_dispatcher_serves_on_a_node(ours, folder):
    """With its environment, but for addresses, copies and paths of here."""
    ports = {"LISTEN": free_port(), "ADMIN_LISTEN": free_port()}
    here = cassandra_node.settings(folder)
    changed = {f"UMBO__SERVER__{name}": f"127.0.0.1:{port}" for name, port in ports.items()}
    changed |= {f"UMBO__CASSANDRA__{name.upper()}": str(value) for name, value in here.items()}
    assert Image().environment()["UMBO__STORE__FOLDER"] == "/data"
    changed["UMBO__STORE__FOLDER"] = str(folder / "data")
    process = Process(folder / "dispatcher")
    try:
        process.spawn(ours["command"], {}, ours["environment"] | changed)

        def is_ready():
            assert process.is_running(), process.log_text()
            try:
                return Client(ports["ADMIN_LISTEN"]).get("/readyz").status == 200
            except OSError:
                return False

        wait_until(is_ready, "the dispatcher serves")
        client = Client(ports["LISTEN"])
        assert client.put("/admin/v1/namespaces/demo").status == 201
        ns = Namespace(client, "demo")
        assert ns.put("user-7", "name", b"Ada").status == 201
        assert ns.get("user-7", "name").body == b"Ada"
        assert not (folder / "data").exists(), "its rows are elsewhere"
    finally:
        process.discard()
