"""docker-compose.yml, and what it mounts: everything in it exists, and the parts fit one another."""

import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from package import CONFIG, IMAGE, Image, compose, of_image, settings_of, umbo
from processes import PROJECT

MAP = CONFIG / "cluster.toml"
DISPATCHERS = ["dispatcher-1", "dispatcher-2", "dispatcher-3"]
SHARDS = ["shard-a", "shard-b", "shard-c"]
# The image's own file of a load balancer's settings, and of Prometheus'.
FOREIGN = {"load-balancer": "haproxy", "prometheus": "prom/prometheus", "grafana": "grafana/grafana"}


@pytest.fixture(scope="module")
def services():
    return compose()["services"]


@pytest.fixture(scope="module")
def ours(services):
    return of_image(services)


def port_of(service, key):
    return int(service["environment"][f"UMBO__{key}"].rsplit(":", 1)[1])


def test_there_are_three_of_each_and_a_load_balancer_and_prometheus(services, ours):
    assert sorted(ours) == DISPATCHERS + SHARDS
    assert {name for name in services if name not in ours} == set(FOREIGN)
    for name, image in FOREIGN.items():
        repository, _, tag = services[name]["image"].partition(":")
        assert repository == image and re.match(r"v?\d", tag), "a version that stays what it is"


def test_every_command_exists(ours):
    for name, service in ours.items():
        role = "dispatcher" if name in DISPATCHERS else "shard"
        assert service["command"] == [role]
        assert umbo(*service["command"], "--help").returncode == 0


def test_every_setting_exists_and_has_a_value_it_can_have(ours):
    for name, service in ours.items():
        assert all(isinstance(value, str) for value in service["environment"].values()), name
        foreign = set(service["environment"]) - set(settings_of(service["environment"]))
        assert foreign == {"HEALTH_PORT"}
        shown = umbo("config", "show", environment=settings_of(service["environment"]))
        assert shown.returncode == 0, (name, shown.stderr)


def test_everything_that_is_mounted_exists(services):
    declared = compose()["volumes"]
    for name, service in services.items():
        for volume in service["volumes"]:
            source, target, *mode = volume.split(":")
            assert target.startswith("/")
            if source.startswith("./"):
                assert (PROJECT / source).exists(), (name, source)
                assert mode == ["ro"], "nobody writes into the project"
            else:
                assert source in declared, (name, source)
    mounted = [volume.split(":")[0] for service in services.values() for volume in service["volumes"]]
    named = [source for source in mounted if not source.startswith("./")]
    assert sorted(named) == sorted(declared), "each volume has one owner"


def test_what_settings_name_is_mounted(ours):
    folder = Image().environment()["UMBO__STORE__FOLDER"]
    for name, service in ours.items():
        targets = {volume.split(":")[1]: volume.split(":")[0] for volume in service["volumes"]}
        in_container = service["environment"]["UMBO__CLUSTER__MAP"]
        mount = next(target for target in targets if in_container.startswith(target + "/"))
        file = PROJECT / targets[mount] / in_container.removeprefix(mount + "/")
        assert file.resolve() == MAP
        assert (folder in targets) == (name in SHARDS)


def test_the_map_names_the_nodes_and_is_whole(ours):
    checked = umbo("shard", "verify", "--map", str(MAP))
    assert checked.returncode == 0, checked
    nodes = tomllib.loads(MAP.read_text())["nodes"]
    by_node = {ours[name]["environment"]["UMBO__CLUSTER__NODE"]: name for name in SHARDS}
    assert sorted(by_node) == sorted(nodes)
    for node, address in nodes.items():
        host, port = address.rsplit(":", 1)
        assert host == by_node[node], "a container is found by its service's name"
        assert int(port) == port_of(ours[host], "SHARD__LISTEN")


def test_a_map_with_a_gap_would_be_noticed(tmp_path):
    broken = tmp_path / "broken.toml"
    broken.write_text(MAP.read_text().replace('"0-341"', '"0-340"'))
    checked = umbo("shard", "verify", "--map", str(broken))
    assert checked.returncode != 0 and "341" in checked.stderr, checked


def test_health_is_asked_for_where_it_is_served(ours):
    for name, service in ours.items():
        asked = int(service["environment"]["HEALTH_PORT"])
        key = "SERVER__ADMIN_LISTEN" if name in DISPATCHERS else "SHARD__ADMIN_LISTEN"
        assert asked == port_of(service, key), name


def test_who_is_waited_for_is_there_and_has_a_health_check(services):
    for service in services.values():
        awaited = service.get("depends_on", [])
        for other in awaited:
            assert other in services
            if isinstance(awaited, dict) and awaited[other]["condition"] == "service_healthy":
                assert services[other]["image"] == IMAGE, "the image has one"


def seconds(text):
    """A span as it is written here: "90s", "1m 30s", "500ms"."""
    units = {"ms": 0.001, "s": 1, "m": 60}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m)\b", text))


def test_a_stop_is_given_the_time_it_takes(ours):
    for service in ours.values():
        shown = umbo("config", "show", environment=settings_of(service["environment"])).stdout
        waits = [seconds(re.search(rf'^{key} = "([^"]+)"', shown, re.M).group(1)) for key in ("drain_delay", "drain_timeout")]
        assert seconds(service["stop_grace_period"]) > sum(waits)


def test_only_this_machine_reaches_what_is_published(services):
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert sorted(published) == sorted(FOREIGN), "nobody goes past the load balancer"
    for ports in published.values():
        assert all(port.startswith("127.0.0.1:") for port in ports)


def test_dispatchers_ask_one_another_on_a_port_of_their_containers(services, ours):
    for name in DISPATCHERS:
        host, port = ours[name]["environment"]["UMBO__CLUSTER__LISTEN"].rsplit(":", 1)
        assert host == "0.0.0.0" and int(port) == 7410
        # Containers have addresses of their own, which dispatchers find out.
        assert "UMBO__CLUSTER__ADVERTISE" not in ours[name]["environment"]
    assert not any("networks" in service or "network_mode" in service for service in services.values())
    assert not any("UMBO__CLUSTER__LISTEN" in ours[name]["environment"] for name in SHARDS)


def test_nobody_may_more_than_needed(ours):
    for service in ours.values():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def load_balancer():
    return (CONFIG / "haproxy.cfg").read_text()


def test_the_load_balancer_can_read_its_settings():
    haproxy = shutil.which("haproxy") or "/usr/sbin/haproxy"
    checked = subprocess.run([haproxy, "-c", "-f", str(CONFIG / "haproxy.cfg")], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    # That names of containers mean nothing here is all there is to say.
    said = [line for line in checked.stderr.splitlines() if "[WARNING]" in line or "[ALERT]" in line]
    assert all("could not resolve address 'dispatcher-" in line for line in said), said


def test_the_load_balancer_asks_every_dispatcher(services, ours):
    servers = re.findall(r"^ +server (\S+) (\S+):(\d+)$", load_balancer(), re.M)
    assert sorted(name for name, _, _ in servers) == DISPATCHERS
    for name, host, port in servers:
        assert name == host and int(port) == port_of(ours[host], "SERVER__LISTEN")
    bound = set(re.findall(r"^ +bind :(\d+)$", load_balancer(), re.M))
    published = {port.rsplit(":", 1)[1] for port in services["load-balancer"]["ports"]}
    assert published < bound
    mounted = services["load-balancer"]["volumes"]
    assert any(volume.startswith("./config/haproxy.cfg:") for volume in mounted)


def test_the_load_balancer_looks_away_before_a_dispatcher_closes(ours):
    interval, fall = re.search(r"inter (\d+)ms fall (\d+)", load_balancer()).groups()
    for name in DISPATCHERS:
        delay = seconds(ours[name]["environment"]["UMBO__SERVER__DRAIN_DELAY"])
        assert delay * 1000 > int(interval) * (int(fall) + 1)
    idle = re.search(r'^idle_timeout = "([^"]+)"', umbo("config", "show").stdout, re.M).group(1)
    kept = re.search(r"timeout http-keep-alive (\w+)", load_balancer()).group(1)
    assert 0 < seconds(kept) < seconds(idle)


def test_grafana_finds_its_source_and_its_dashboards(services):
    grafana = services["grafana"]
    mounted = dict(volume.split(":")[1::-1] for volume in grafana["volumes"])
    provisioning = PROJECT / mounted["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources/umbo.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in services
    (provider,) = yaml.safe_load((provisioning / "dashboards/umbo.yml").read_text())["providers"]
    dashboards = PROJECT / mounted[provider["options"]["path"]]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (dashboards / home.rpartition("/")[2]).is_file() and home.startswith(provider["options"]["path"])
    assert grafana["ports"] == ["127.0.0.1:3000:3000"], "it has no login, so only this machine may reach it"


def test_prometheus_asks_everybody_where_metrics_are(services, ours):
    scraped = yaml.safe_load((CONFIG / "prometheus.yml").read_text())
    targets = {}
    for job in scraped["scrape_configs"]:
        for group in job["static_configs"]:
            targets[job["job_name"]] = group["targets"]
        assert set(job) <= {"job_name", "static_configs", "scrape_interval", "metrics_path"}, job
    admin = {name: port_of(ours[name], "SERVER__ADMIN_LISTEN") for name in DISPATCHERS}
    assert targets["umbo-dispatcher"] == [f"{name}:{port}" for name, port in admin.items()]
    admin = {name: port_of(ours[name], "SHARD__ADMIN_LISTEN") for name in SHARDS}
    assert targets["umbo-shard"] == [f"{name}:{port}" for name, port in admin.items()]
    (own,) = targets["load-balancer"]
    host, port = own.split(":")
    assert host in services and f"bind :{port}\n" in load_balancer()
    assert set(scraped) == {"global", "rule_files", "scrape_configs"}
    rules = f"/etc/prometheus/{scraped['rule_files'][0].rpartition('/')[0]}"
    assert f"./config/prometheus:{rules}:ro" in services["prometheus"]["volumes"]
    assert seconds(scraped["global"]["scrape_timeout"]) <= seconds(scraped["global"]["scrape_interval"])
