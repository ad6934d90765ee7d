"""A cluster that demands TLS with certificates of its clients, and a password: what fits is served, and what does not is
refused at the start, with the setting that mends it."""

import json
import pathlib
import socket
import subprocess
import sys

import pytest

import cassandra_node
from harness import Server, binary, wait_until
from processes import toml_text
from tier import free_port

sys.path.append(str(pathlib.Path(__file__).parent.parent / "cluster"))
from certificates import Authority  # noqa: E402

pytestmark = [pytest.mark.real("cassandra"), pytest.mark.embedded("the engine takes the place of the nodes")]

# The node takes plain connections on its other port.
ENCRYPTED = """
authenticator: PasswordAuthenticator
native_transport_port_ssl: {port}
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: true
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: {folder}/both.pem
  truststore: {folder}/ca.pem
"""


class EncryptedNode:
    """A node, with the authority that it and its clients trust."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.authority, self.stranger = Authority(folder), Authority(folder / "stranger")
        own = self.authority.settings("cassandra")["cluster"]
        pems = [pathlib.Path(own[name]).read_text() for name in ("key", "certificate")]
        (folder / "both.pem").write_text("".join(pems))
        self.cluster = cassandra_node.Cluster(1, ENCRYPTED.format(port=self.port, folder=folder))
        self.shown = self.authority.settings("umbo")["cluster"]
        (folder / "password").write_text("cassandra\n")
        (folder / "wrong-password").write_text("guessed\n")

    def __enter__(self):
        self.cluster.__enter__()
        log = self.cluster.nodes[0].folder / "log"
        wait_until(lambda: "Created default superuser role" in log.read_text(), "the first user is there")
        return self

    def __exit__(self, *_):
        self.cluster.__exit__()

    def settings(self, **other):
        """Settings that fit, but for these."""
        login = {"user": "cassandra", "password_file": str(self.folder / "password")}
        contact = {"contact_points": f"127.0.0.1:{self.port}"}
        of_engine = self.cluster.settings() | contact | login | self.shown | other
        of_engine = {name: value for name, value in of_engine.items() if value is not None}
        return {"store": {"engine": "cassandra", "shards": 4}, "cassandra": of_engine}

    def plain(self):
        return f"127.0.0.1:{self.cluster.ports[0]}"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with EncryptedNode(tmp_path_factory.mktemp("encrypted") / "tls") as node:
        yield node


def test_rows_go_over_mutual_tls_and_outlive_a_restart(node, folder):
    with Server(folder / "one", node.settings()) as server:
        ns = server.start().namespace()
        rows = [{"pk": f"p{number % 7}", "sk": f"{number:03}", "v": "x" * 10_000} for number in range(300)]
        assert all(line["status"] == 201 for line in ns.write(rows).batch()[:-1])
        assert ns.put("p", "s", b"first").status == 201
        assert ns.get("p", "s").body == b"first"
        (known,) = server.admin().get("/admin/v1/cluster").json()["nodes"]
        assert known["reachable"] and known["address"] == f"127.0.0.1:{node.port}", known
        assert server.admin().get("/readyz").status == 200
        server.kill()
        ns = server.start().namespace()
        assert ns.get("p", "s").body == b"first"
        assert len(ns.scan_all()) == 301


def local_ports(server, port):
    """Addresses of this machine on which a server takes connections for nodes with this port."""
    table = pathlib.Path(f"/proc/{server.process.pid}/net/tcp").read_text().splitlines()
    listening = [line.split()[1] for line in table[1:] if line.split()[3] == "0A"]
    found = {(socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(at, 16)) for host, at in (one.split(":") for one in listening)}
    return [one for one in found if one[1] == port and one[0] != "127.0.0.1"]


def test_other_processes_of_the_machine_cannot_use_the_connections(node, folder):
    with Server(folder / "one", node.settings()) as server:
        server.start()
        (local,) = local_ports(server, node.port)
        version = b"\0\1" + b"\0\x0bCQL_VERSION" + b"\0\x053.0.0"
        startup = bytes([4, 0, 0, 0, 1]) + len(version).to_bytes(4, "big") + version
        for first in (b"", cassandra_node.OPTIONS):
            with socket.create_connection(local) as asked:
                asked.sendall(first)
                assert first == b"" or asked.recv(1 << 16)[4] == cassandra_node.SUPPORTED
                asked.sendall(startup)
                assert asked.recv(1 << 16) == b"", "a session begins"


def refusal(node, folder, **other):
    """What a server says that does not start with these settings."""
    with Server(folder / "one", node.settings(**other)) as server:
        server.launch()
        assert server.wait(60) != 0
        return server.log_text()


NO_CERTIFICATE = {"certificate": None, "key": None}
NO_TLS = NO_CERTIFICATE | {"ca": None}


def test_a_certificate_of_another_authority_is_refused(node, folder):
    told = refusal(node, folder, ca=str(node.stranger.folder / "ca.pem"))
    assert "invalid peer certificate" in told, told
    assert "cassandra.ca must hold the authority of the node's certificate" in told, told


def test_the_cluster_refuses_who_shows_no_certificate_or_a_stranger(node, folder):
    stranger = node.stranger.settings("umbo")["cluster"]
    for shown in (NO_CERTIFICATE, {name: stranger[name] for name in ("certificate", "key")}):
        told = refusal(node, folder, **shown)
        assert "name a trusted one in cassandra.certificate and cassandra.key" in told, told


def test_a_cluster_with_tls_refuses_plain_connections(node, folder):
    told = refusal(node, folder, **NO_TLS)
    assert "the node ends a connection without TLS" in told and "cassandra.ca" in told, told


def test_a_cluster_without_tls_is_told(node, folder):
    told = refusal(node, folder, contact_points=node.plain())
    assert "its answer is not TLS; turn on client_encryption_options" in told, told


def test_files_that_do_not_fit_are_told(node, folder):
    other = node.authority.settings("other")["cluster"]["key"]
    for wrong, reason in (
        ({"ca": "absent.pem"}, "cannot read absent.pem"),
        ({"ca": node.shown["key"]}, "holds no certificate in PEM form"),
        ({"certificate": None}, "a certificate needs its key and a key its certificate"),
        ({"ca": None}, "that needs the authorities of the nodes"),
        ({"key": other}, "does not belong to the certificate"),
    ):
        assert reason in (told := refusal(node, folder, **wrong)), told


def test_the_doctor_asks_as_a_start_does(node, folder):
    def found(**other):
        folder.mkdir(exist_ok=True)
        (folder / "umbo.toml").write_text(toml_text(node.settings(**other)))
        words = [binary(), "doctor", "--config", "umbo.toml", "-o", "json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=folder)
        return {one["check"]: one for one in json.loads(done.stdout)["checks"]}

    well = found()
    assert [well[check]["health"] for check in ("cassandra", "cassandra certificate")] == ["ok", "ok"], well
    assert "disk" not in well, "the rows are on no disk of this machine"
    for other, reason in (
        ({"ca": str(node.stranger.folder / "ca.pem")}, "cassandra.ca must hold the authority"),
        (NO_TLS, "the node ends a connection without TLS"),
        ({"contact_points": "127.0.0.1"}, "name nodes as host:port"),
    ):
        unwell = found(**other)["cassandra"]
        assert unwell["health"] == "problem" and reason in unwell["found"], unwell


def test_a_password_is_asked_for_with_and_without_tls(node, folder):
    wrong = {"password_file": str(node.folder / "wrong-password")}
    for more in ({}, NO_TLS | {"contact_points": node.plain()}):
        told = refusal(node, folder, **more, **wrong)
        assert "the Cassandra cluster refuses cassandra.user or the password in cassandra.password_file" in told, told
        told = refusal(node, folder, **more, user=None, password_file=None)
        assert "the Cassandra cluster asks for a password: set cassandra.user" in told, told
    with Server(folder / "plain", node.settings(**NO_TLS, contact_points=node.plain())) as server:
        ns = server.start().namespace()
        assert ns.put("p", "s", b"first").status == 201 and ns.get("p", "s").body == b"first"
