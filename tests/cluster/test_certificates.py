"""TLS between dispatchers and nodes: both ends show a certificate, or nothing is said."""

import pathlib
import shutil
import signal
import socket
import ssl

import pytest

from certificates import Authority
from deadline import GRACE_SECONDS
from harness import Namespace, Server, wait_until


def test_a_cluster_with_certificates_works_from_end_to_end(new_cluster, authority):
    cluster = new_cluster(2, authority.settings("dispatcher"), node_settings=authority.settings("node")).start()
    first, second = cluster.dispatchers
    ns = first.namespace()
    partitions = [one for own in cluster.partitions(ns, 4).values() for one in own]
    for one in partitions:
        assert ns.put(one, value=one.encode()).status == 201
    assert len(ns.scan_all()) == len(partitions)
    other = Namespace(second.client(), "demo")
    wait_until(lambda: other.get(partitions[0]).status == 200, "the other one knows it")
    assert [other.get(one).body for one in partitions] == [one.encode() for one in partitions]
    node = cluster.nodes["b"]
    node.restart()
    wait_until(lambda: all(ns.put(one).status == 204 for one in partitions), "a node that was restarted is found")
    with socket.create_connection((node.host, node.port), 30) as sock:
        sock.sendall(HELLO)
        # A TLS alert, or nothing.
        assert sock.recv(100)[:1] in (b"\x15", b""), "nothing is said in the clear"
    cluster.stop()


def hello():
    """What a dispatcher of another cluster says first: every node answers it, with a refusal."""
    versions, cluster, node, map_version, records = b"\x01\x01", b"\x06others", b"\x01a", b"\x01", b"\x00\x00"
    incarnation, window, software = bytes(8), b"\x80\x80\x80\x08", b"\x04test"
    body = b"\x01" + versions + cluster + node + map_version + records + incarnation + window + software
    return b"UMBOHOP1" + len(body).to_bytes(4, "little") + body


HELLO = hello()


def shown(node, settings):
    """Connects as a dispatcher would; returns what went wrong, none where it was let in."""
    files = settings["cluster"] if settings else None
    context = ssl.create_default_context(cafile=files["ca"]) if files else ssl._create_unverified_context()
    if files:
        context.load_cert_chain(files["certificate"], files["key"])
    try:
        with socket.create_connection((node.host, node.port), 30) as raw:
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as sock:
                sock.sendall(HELLO)
                return None if sock.recv(9) else "closed"
    except OSError as failure:
        return repr(failure)


def test_a_node_lets_in_only_who_shows_a_good_certificate(new_cluster, authority, tmp_path):
    cluster = new_cluster(0, node_settings=authority.settings("node")).start()
    node = cluster.nodes["a"]
    assert shown(node, authority.settings("dispatcher")) is None
    strangers = Authority(tmp_path / "strangers").settings("dispatcher")
    strangers["cluster"]["ca"] = authority.settings("x")["cluster"]["ca"]
    assert shown(node, strangers) is not None, "somebody else's authority"
    assert shown(node, authority.expired()) is not None, "too late"
    assert shown(node, authority.settings("early", first="20980101000000Z")) is not None, "too early"
    assert shown(node, None) is not None, "nothing shown"
    assert node.readiness() == 200
    cluster.stop()


@pytest.mark.parametrize("kind", ["expired", "of strangers", "none"])
def test_a_dispatcher_that_is_not_let_in_says_why_and_harms_nobody(new_cluster, authority, tmp_path, kind):
    cluster = new_cluster(1, authority.settings("dispatcher"), node_settings=authority.settings("node")).start()
    ns = cluster.dispatchers[0].namespace()
    settings = {
        "expired": lambda: authority.expired(),
        "of strangers": lambda: Authority(tmp_path / "strangers").settings("dispatcher"),
        "none": lambda: {},
    }[kind]()
    bad = Server(tmp_path / "bad", settings, tier=cluster.tier)
    try:
        bad.launch()

        wait_until(lambda: "waiting for the shard nodes" in bad.log_text(), "it is refused")
        assert '"umbo serves"' not in bad.log_text()
        if kind != "none":
            # The node says it in any case; the dispatcher where it was told before it was cut off.
            said = [bad.log_text(), *(node.log_text() for node in cluster.nodes.values())]
            assert any("certificate" in text.lower() for text in said), said
        else:
            assert "127.0.0.1" in bad.log_text(), bad.log_text()
    finally:
        bad.discard()
    for own in cluster.partitions(ns, 1).values():
        assert ns.put(own[0], value=b"x").status == 201
    cluster.stop()


def test_a_node_with_an_expired_certificate_is_not_trusted(new_cluster, authority):
    cluster = new_cluster(1, authority.settings("dispatcher"), node_settings=authority.settings("node"))
    # The first start of a cluster makes its records, and needs every node for that.
    cluster.start()
    node = cluster.nodes["c"]
    node.stop()
    node.settings = authority.expired()
    node.launch()
    wait_until(lambda: not node.is_running() or node.readiness() == 200, "it has made up its mind")
    if not node.is_running():
        assert node.wait() != 0 and "certificate" in node.log_text().lower(), node.log_text()
        return
    dispatcher = cluster.dispatchers[0]
    ns = dispatcher.namespace()
    partitions = cluster.partitions(ns, 2)
    # It is no longer expected back.
    dispatcher.clock.advance(GRACE_SECONDS)
    for name, own in partitions.items():
        for one in own:
            answer = ns.put(one, value=b"x")
            if name == "c":
                answer.problem(503, "shard-unavailable")
            else:
                assert answer.status == 201, answer
    assert any("certificate" in line.lower() for line in dispatcher.log), dispatcher.log_text()
    # A good one in its place, and everything is well without a restart of the dispatcher.
    node.settings = authority.settings("node")
    node.restart()
    wait_until(lambda: all(ns.put(one, value=b"x").status == 201 for one in partitions["c"]), "it is trusted")
    cluster.stop()


def test_certificates_are_settings_that_go_together(new_cluster, authority):
    for missing in ("key", "ca"):
        settings = authority.settings("half")
        del settings["cluster"][missing]
        cluster = new_cluster(1, settings, name=f"without-{missing}")
        dispatcher = cluster.dispatchers[0].launch()
        assert dispatcher.wait() not in (0, None)
        assert f"cluster.{missing}" in dispatcher.log_text()


def test_another_authority_takes_over_while_all_serve(new_cluster, authority, tmp_path):
    next_one = Authority(tmp_path / "next")
    held = {}
    for role in ("dispatcher", "node"):
        (tmp_path / role).mkdir()
        held[role] = {"cluster": {key: str(tmp_path / role / key) for key in ("certificate", "key", "ca")}}

    def give(of, roles, *keys):
        for role in roles:
            made = of.settings(role)["cluster"]
            for key in keys:
                shutil.copy(made[key], held[role]["cluster"][key])

    give(authority, held, "certificate", "key", "ca")
    cluster = new_cluster(2, held["dispatcher"], node_settings=held["node"]).start()
    first, second = cluster.dispatchers
    ns = first.namespace()
    other = Namespace(second.client(), "demo")
    partitions = [one for own in cluster.partitions(ns, 1).values() for one in own]

    def all_serve(what):
        for one in (ns, other):
            wait_until(lambda one=one: all(one.put(name).status in (201, 204) for name in partitions), what)

    all_serve("all know one another")
    # First everybody trusts the next authority too, without a restart.
    both = (authority.folder / "ca.pem").read_text() + (next_one.folder / "ca.pem").read_text()
    for role in held.values():
        pathlib.Path(role["cluster"]["ca"]).write_text(both)
    for one in (*cluster.nodes.values(), first, second):
        one.process.send_signal(signal.SIGHUP)
    # Then the certificates: a restart makes connections between new ones and old ones, either way.
    give(next_one, ["node"], "certificate", "key")
    cluster.nodes["a"].restart()
    all_serve("a node with the next certificate is trusted")
    give(next_one, ["dispatcher"], "certificate", "key")
    second.stop()
    second.start()
    other = Namespace(second.client(), "demo")
    all_serve("a dispatcher with the next certificate is trusted")
    cluster.stop()
