"""The port of a dispatcher for the other dispatchers: who is heard there, and what becomes of all others."""

import json
import re
import socket
import ssl

import pytest

from certificates import Authority
from harness import Server, receive, wait_until
from test_fleet import ask, fleet_of

ROUTE = "/admin/v1/shed"


def port_of(dispatcher):
    """The port at which other dispatchers reach it."""
    found = wait_until(lambda: re.search(r'"address":"127.0.0.1:(\d+)"', dispatcher.log_text()), "it is told")
    return int(found.group(1))


def asked(port, request, of_cluster=None, certificate=True):
    """Sends bytes as one of the cluster would, and returns what comes back; an error if it is not let in."""
    try:
        with socket.create_connection(("127.0.0.1", port), 30) as raw:
            if of_cluster is None:
                raw.sendall(request)
                return receive(raw)
            files = of_cluster["cluster"]
            context = ssl.create_default_context(cafile=files["ca"])
            context.check_hostname = False
            if certificate:
                context.load_cert_chain(files["certificate"], files["key"])
            with context.wrap_socket(raw) as sock:
                sock.sendall(request)
                return receive(sock)
    except ssl.SSLError as error:
        return repr(error).encode()


def request(method="GET", path=ROUTE, **fields):
    lines = [f"{method} {path} HTTP/1.1", "host: umbo-dispatcher", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def forged(method="GET", path=ROUTE, **fields):
    """A question of somebody who knows all but the key."""
    asker = json.dumps({"to": 1, "at_ms": 1, "caller": "ops", "grants": ["*:*"]}).encode().hex()
    return request(method, path, umbo_fleet_question=asker, umbo_fleet_signature="0" * 64, **fields)


@pytest.mark.parametrize(
    "sent, status, reason",
    [
        (request(), 401, "no signature"),
        (request(umbo_fleet_question="e30"), 401, "no signature"),
        (forged(), 401, "wrong signature"),
        (request("POST"), 405, "GET only"),
        (request("DELETE", "/admin/v1/namespaces/demo"), 405, "GET only"),
        # No byte of a body without a signature is waited for.
        (request("POST", "/fleet/v1/quotas", content_length=1000), 401, "no signature"),
        (forged("POST", "/fleet/v1/quotas", content_length=1000), 401, "wrong signature"),
        (request(path="/v1/ns/demo/kv/a"), 401, "server.listen"),
        (request(umbo_fleet_question="x" * 40_000), 431, "header"),
    ],
)
def test_who_has_not_the_key_is_refused(pair, sent, status, reason):
    first, _ = pair.dispatchers
    answer = asked(port_of(first), sent).decode()
    assert answer.startswith(f"HTTP/1.1 {status} ") and reason in answer, answer


def test_garbage_harms_nobody(pair):
    first, second = pair.dispatchers
    fleet_of(first, 2)
    port = port_of(second)
    for garbage in (b"\0" * 100, b"UMBOHOP1" + bytes(30), b"GET / HTTP/9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n????"):
        asked(port, garbage + b"\r\n" * 2000)
    assert [one["status"] for one in ask(first, "shed")] == [200, 200]


def test_questions_pass_over_tls_and_only_dispatchers_are_heard(new_cluster, authority, tmp_path):
    cluster = new_cluster(2, authority.settings("dispatcher"), node_settings=authority.settings("node")).start()
    first, second = cluster.dispatchers
    fleet_of(first, 2)
    for dispatcher in cluster.dispatchers:
        assert [one["status"] for one in ask(dispatcher, "shed")] == [200, 200]
    port = port_of(second)
    heard = asked(port, forged(), authority.settings("dispatcher"))
    assert b" 401 " in heard and b"signature" in heard, heard
    refused = asked(port, forged(), authority.settings("node"))
    assert b" 403 " in refused and b"umbo-dispatcher" in refused, refused
    stranger = Authority(tmp_path / "strangers").settings("dispatcher")
    stranger["cluster"]["ca"] = authority.settings("x")["cluster"]["ca"]
    for shown, certificate in ((stranger, True), (authority.expired(), True), (stranger, False)):
        outside = asked(port, forged(), shown, certificate)
        assert b"HTTP/1.1" not in outside, outside
    assert b"HTTP/1.1 4" not in asked(port, request())
    assert [one["status"] for one in ask(first, "shed")] == [200, 200]
    cluster.stop()


def test_a_dispatcher_without_the_name_of_its_role_is_named(new_cluster, authority, tmp_path):
    cluster = new_cluster(1, authority.settings("dispatcher"), node_settings=authority.settings("node")).start()
    (first,) = cluster.dispatchers
    other = Server(tmp_path / "other", authority.settings("node"), tier=cluster.tier)
    try:
        other.launch()
        other.wait_until_it_serves()
        fleet_of(first, 2)
        (of_other,) = [one for one in ask(first, "shed") if not one["process"]["is_self"]]
        assert "status" not in of_other and "umbo-dispatcher" in of_other["error"], of_other
        (of_first,) = [one for one in ask(other, "shed") if not one["process"]["is_self"]]
        assert "status" not in of_first and "umbo-dispatcher" in of_first["error"], of_first
    finally:
        other.discard()
    cluster.stop()
