"""`umbo doctor`: each fault staged, named, with what to do; and a healthy machine has none."""

import email.utils
import http.server
import json
import os
import resource
import subprocess
import sys
import threading
import time

import pytest

from clock import Clock
from harness import Cluster, binary
from processes import PROJECT, toml_text, wait_until
from tier import free_port, map_text

sys.path.insert(0, str(PROJECT / "tests/cluster"))

from certificates import Authority  # noqa: E402

STATES = ("ok", "warning", "problem", "skipped")


@pytest.fixture
def clock():
    """A clock that stands still: what the command measures takes no time, however slow the machine is."""
    clock = Clock()
    clock.stop()
    yield clock
    clock.close()


def doctor(folder, settings=None, arguments=("--offline",), files=None, environment=None, clock=None):
    """Runs the command; returns the findings by check, the last of each name, and the exit code. It lives by a clock if
    it is given one."""
    folder.mkdir(exist_ok=True, parents=True)
    config = folder / "umbo.toml"
    config.write_text(toml_text(settings or {}))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}

    def limit():
        if files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    done = subprocess.run(
        [binary(), "doctor", "--config", str(config), "-o", "json", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        preexec_fn=limit,
        env=clean | (environment or {}) | (clock.environment() if clock else {}),
    )
    report = json.loads(done.stdout)
    counted = [one["health"] for one in report["checks"]]
    assert report["problems"] == counted.count("problem") and set(counted) <= set(STATES), report
    assert report["warnings"] == counted.count("warning")
    assert all(("advice" in one) == (one["health"] in ("warning", "problem")) for one in report["checks"])
    assert done.returncode == (1 if report["problems"] else 0) and done.stderr == "", done
    return {one["check"]: one for one in report["checks"]}


def test_a_healthy_machine_has_no_problem(server, still, tmp_path):
    settings = {"store": {"folder": str(server.folder)}}
    address = f"http://127.0.0.1:{server.port}"
    found = doctor(tmp_path, settings, ("--server", address), clock=still)
    # The disk of the machine that runs the tests may be nearly full.
    well = {name: one["health"] for name, one in found.items() if name != "disk"}
    assert set(well.values()) == {"ok"} and {"settings", "open files", "disk sync", "server", "clock"} <= set(well)
    screen = subprocess.run(
        [binary(), "doctor", "--server", address], capture_output=True, text=True, cwd=tmp_path, timeout=60
    ).stdout
    assert "problem" in screen.splitlines()[-1] and len(screen.splitlines()) < 25


def test_a_bad_setting_is_named(tmp_path):
    found = doctor(tmp_path, {"server": {"connections_max": 0}})
    assert found["settings"]["health"] == "problem" and "connections_max" in found["settings"]["found"]


def test_too_few_files_for_the_connections(tmp_path):
    found = doctor(tmp_path, {"server": {"connections_max": 10_000}}, files=1_024)
    assert found["open files"]["health"] == "problem" and "1024" in found["open files"]["found"]
    assert doctor(tmp_path, {"server": {"connections_max": 100}}, files=4_096)["open files"]["health"] == "ok"


def test_a_folder_that_cannot_be_written(tmp_path):
    data = tmp_path / "data"
    # Also who may write everything cannot write a file where a folder is.
    (data / "sync-probe").mkdir(parents=True)
    found = doctor(tmp_path, {"store": {"folder": str(data)}})
    assert found["disk sync"]["health"] == "problem" and "sync-probe" in found["disk sync"]["found"]
    absent = doctor(tmp_path, {"store": {"folder": str(tmp_path / "absent")}})
    assert absent["disk"]["health"] == "skipped"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_disk_that_is_nearly_full(tmp_path):
    data = tmp_path / "small"
    data.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(data)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this container may not mount")
    try:
        found = doctor(tmp_path, {"store": {"folder": str(data)}})
        assert found["disk"]["health"] == "problem" and "507" in found["disk"]["advice"], found["disk"]
    finally:
        subprocess.run(["umount", str(data)], check=True)


def test_a_policy_file_that_is_no_policy(tmp_path):
    (tmp_path / "quotas.toml").write_text('[[policy]]\nname = "a"\nrate = "much"\n')
    found = doctor(tmp_path, {"quota": {"policy_file": str(tmp_path / "quotas.toml")}})
    assert found["policy file"]["health"] == "problem"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


class TestCertificates:
    def check(self, tmp_path, of_cluster, clock=None, **more):
        tls = {name: of_cluster["cluster"][name] for name in ("certificate", "key")} | more
        return doctor(tmp_path, {"tls": tls}, clock=clock)["certificate"]

    def test_a_good_one(self, authority, tmp_path):
        found = self.check(tmp_path, authority.settings())
        assert found["health"] == "ok" and "more days" in found["found"], found

    def test_one_that_has_expired(self, authority, tmp_path):
        found = self.check(tmp_path, authority.expired())
        assert found["health"] == "problem" and "has expired" in found["found"]

    def test_one_that_ends_soon(self, authority, tmp_path, clock):
        soon = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(clock.time() + 3 * 86_400 + 1))
        of_cluster = authority.settings(last=soon)
        found = self.check(tmp_path, of_cluster, clock=clock)
        assert found["health"] == "warning" and "3 more days" in found["found"], found

    def test_one_that_is_not_valid_yet(self, authority, tmp_path):
        found = self.check(tmp_path, authority.settings(first="20980101000000Z"))
        assert found["health"] == "problem" and "not valid yet" in found["found"]

    def test_the_key_of_another_one(self, authority, tmp_path):
        other = authority.settings()["cluster"]["key"]
        found = self.check(tmp_path, authority.settings(), key=other)
        assert found["health"] == "problem" and "does not belong" in found["found"]

    def test_a_file_that_is_not_there(self, authority, tmp_path):
        found = self.check(tmp_path, authority.settings(), certificate=str(tmp_path / "absent.pem"))
        assert found["health"] == "problem" and "absent.pem" in found["found"]

    @pytest.mark.parametrize(
        "host, health", [("127.0.0.1", "ok"), ("localhost", "ok"), ("10.9.8.7", "problem"), ("shard.example", "problem")]
    )
    def test_names_of_a_node(self, authority, tmp_path, host, health):
        (tmp_path / "cluster.toml").write_text(map_text({"a": f"{host}:{free_port()}"}, ["a"]))
        of_cluster = authority.settings()["cluster"] | {"map": str(tmp_path / "cluster.toml"), "node": "a"}
        found = doctor(tmp_path, {"cluster": of_cluster})
        assert found["cluster names"]["health"] == health, found["cluster names"]
        assert found["cluster certificate"]["health"] == "ok"

    def test_one_of_another_authority(self, authority, tmp_path, tmp_path_factory):
        stranger = Authority(tmp_path_factory.mktemp("stranger"))
        (tmp_path / "cluster.toml").write_text(map_text({"a": f"127.0.0.1:{free_port()}"}, ["a"]))
        of_cluster = authority.settings()["cluster"] | {
            "ca": str(stranger.folder / "ca.pem"),
            "map": str(tmp_path / "cluster.toml"),
            "node": "a",
        }
        found = doctor(tmp_path, {"cluster": of_cluster})
        assert found["cluster names"]["health"] == "problem", found


def test_a_server_that_is_away(tmp_path):
    found = doctor(tmp_path, arguments=("--server", f"127.0.0.1:{free_port()}", "--timeout", "2s"))
    assert found["server"]["health"] == "problem" and "--server" in found["server"]["advice"]


def test_a_token_that_may_not_look_inside(new_server, tmp_path):
    server = new_server().start()
    token = lambda name, *grants: server.client(token=tokens.get("root")).post(
        "/admin/v1/tokens", {"name": name, "grants": list(grants)}
    ).json()["token"]
    tokens = {}
    server.namespace("demo")
    tokens["root"] = token("root", "*:*")
    reader = token("reader", "read:demo")
    address = ("--server", f"127.0.0.1:{server.port}")
    found = doctor(tmp_path, arguments=address, environment={"UMBO_TOKEN": reader})
    assert found["inside"]["health"] == "skipped" and "token" in found["inside"]["found"], found
    assert found["server"]["health"] == "ok" and "diagnosis" not in found
    found = doctor(tmp_path, arguments=address, environment={"UMBO_TOKEN": tokens["root"]})
    assert found["diagnosis"]["health"] == found["server's files"]["health"] == "ok"


class OtherServer(http.server.BaseHTTPRequestHandler):
    """One of another version, with another idea of the time."""

    clock = late_by = None

    def do_GET(self):
        bodies = {
            "/": {"name": "umbo", "version": "99.0.0", "about": "", "openapi": "", "contract": "", "status": "", "page": ""},
            "/readyz": {"status": "degraded", "problems": ["shard 3 is read-only"]},
        }
        body = json.dumps(bodies.get(self.path, {})).encode()
        self.send_response_only(200 if self.path in bodies else 403)
        self.send_header("Date", email.utils.formatdate(self.clock.time() - self.late_by, usegmt=True))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("late_by, health", [(3_600, "problem"), (-3_600, "problem"), (12, "warning"), (0, "ok")])
def test_a_clock_that_differs_and_another_version(tmp_path, clock, late_by, health):
    handler = type("Late", (OtherServer,), {"clock": clock, "late_by": late_by})
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=other.serve_forever, args=(0.01,))
    thread.start()
    try:
        found = doctor(tmp_path, arguments=("--server", f"127.0.0.1:{other.server_port}"), clock=clock)
    finally:
        other.shutdown()
        thread.join()
        other.server_close()
    assert found["clock"]["health"] == health, found["clock"]
    assert found["server"]["health"] == "warning" and "99.0.0" in found["server"]["found"]
    assert found["ready"]["health"] == "problem" and "read-only" in found["ready"]["found"]


def test_nodes_that_are_away_and_maps_that_differ(folder, tmp_path):
    cluster = Cluster(folder)
    try:
        cluster.start()
        (dispatcher,) = cluster.dispatchers
        settings = {"cluster": {"map": str(cluster.tier.map_file)}}
        address = ("--server", f"127.0.0.1:{dispatcher.port}")
        found = doctor(tmp_path, settings, address)
        assert found["node"]["health"] == found["diagnosis"]["health"] == found["cluster map"]["health"] == "ok"
        newer = tmp_path / "newer.toml"
        newer.write_text(cluster.tier.map_file.read_text().replace("version = 1", "version = 2"))
        found = doctor(tmp_path, {"cluster": {"map": str(newer)}}, address)
        assert found["node"]["health"] == "warning" and "map 1" in found["node"]["found"], found["node"]
        for node in cluster.nodes.values():
            node.kill()
        away = lambda: doctor(tmp_path, settings, address)["diagnosis"]["health"] == "problem"
        wait_until(away, "the dispatcher knows that its nodes are away")
        found = doctor(tmp_path, settings, address)
        assert found["node"]["health"] == found["diagnosis"]["health"] == found["ready"]["health"] == "problem"
        for node in cluster.nodes.values():
            node.launch()
        cluster.tier.start()
    finally:
        cluster.discard()


def test_a_map_that_is_no_map(tmp_path):
    (tmp_path / "cluster.toml").write_text("nonsense = 1\n")
    found = doctor(tmp_path, {"cluster": {"map": str(tmp_path / "cluster.toml")}}, ("--server", f"127.0.0.1:{free_port()}", "--timeout", "1s"))
    assert found["cluster map"]["health"] == "problem"
