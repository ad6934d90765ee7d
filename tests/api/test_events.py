"""Events: what operators change is told with who, why, before and after; what happens is told too."""

import concurrent.futures
import contextlib
import re
import socket

from processes import WAIT_SECONDS, wait_until


def events(server, since="0", wait=0):
    answer = server.admin().get(f"/admin/v1/events?since={since}&wait={wait}")
    assert answer.status == 200, answer
    return answer.json()


def last(server, kind):
    return [one for one in events(server)["events"] if one["kind"] == kind][-1]


def test_a_start_is_an_event(server):
    first = events(server)["events"][0]
    assert first["kind"] == "started" and "by" not in first
    # Its settings are written before it is started.
    begun = (server.folder / "umbo.toml").stat().st_mtime
    assert begun * 1000 - 1 <= first["at_ms"] <= server.clock.time() * 1000


def test_each_change_is_told_once_with_who_and_why(server):
    client = server.client()
    before = events(server)["next"]
    path = "/admin/v1/namespaces/told"
    assert client.put(path, b'{"default_ttl":60}', Umbo_Reason="für den Start".encode()).status == 201
    assert client.put(path, b'{"default_ttl":60}').status == 200
    assert client.request("PATCH", path, b'{"default_ttl":5}', Umbo_Reason="shorter").status == 200
    assert client.request("PATCH", path, b'{"default_ttl":5}').status == 200
    policy = b'{"name":"told","unit":"requests","rate":%d,"per":["caller"],"match":{"namespace":"told"}}'
    assert client.put("/admin/v1/quotas/told", policy % 900, Umbo_Reason="launch").status == 201
    tag = client.get("/admin/v1/quotas/told").headers["etag"]
    assert client.put("/admin/v1/quotas/told?dry_run=true", policy % 1, If_Match=tag).status == 200
    assert client.put("/admin/v1/quotas/told", policy % 800, If_Match=tag).status == 200
    assert client.delete("/admin/v1/quotas/told", Umbo_Reason="over").status == 200
    key = "/admin/v1/hot/blocked/ns/told/kv/k"
    assert client.put(key, b'{"reason":"abuse"}').status == 201
    assert client.delete(key).status == 204
    assert client.delete(path).status in (202, 204)
    told = events(server, before)["events"]
    assert [(one["kind"], one.get("reason")) for one in told] == [
        ("namespace-created", "für den Start"),
        ("namespace-changed", "shorter"),
        ("policy-changed", "launch"),
        ("policy-changed", None),
        ("policy-removed", "over"),
        ("hot-key-listed", "abuse"),
        ("hot-key-unlisted", None),
        ("namespace-removed", None),
    ]
    assert all(one["by"] == "anonymous" for one in told)
    assert "60" in told[1]["before"] and "5" in told[1]["after"]
    assert "900" in told[3]["before"] and "800" in told[3]["after"] and "after" not in told[4]
    ids = [one["id"] for one in told]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    log = [line for line in list(server.log) if '"kind":"policy-changed"' in line and "launch" in line]
    assert len(log) == 1, "a change is logged once"


def test_a_reason_has_bounds(server):
    client = server.client()
    for reason in ("", "x" * 257, "a\tb"):
        answer = client.put("/admin/v1/namespaces/unreasonable", b"", Umbo_Reason=reason)
        answer.problem(400, "invalid-header")
    client.get("/admin/v1/namespaces/unreasonable").problem(404, "namespace-not-found")


def waiting(server):
    """Requests of operators that wait for an event."""
    return server.metric('umbo_requests_in_flight{operation="admin"}')


@contextlib.contextmanager
def listener(server, since, wait):
    """Waits for an event beside the test; the block begins when the server has the request."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(events, server, since, wait)
        wait_until(lambda: waiting(server) == 1, "the request waits")
        yield answer


def test_who_waits_hears_of_a_change_at_once(server, still):
    """No time passes that could end the wait."""
    with listener(server, events(server)["next"], 20) as answer:
        server.namespace("heard-of")
        assert answer.result(WAIT_SECONDS)["events"][0]["subject"] == "heard-of"


def test_a_wait_ends_after_its_time(server, still):
    since = events(server)["next"]
    with listener(server, since, 1) as answer:
        still.advance(0.9)
        assert waiting(server) == 1 and not answer.done()
        # It may have begun to wait only now.
        wait_until(lambda: answer.done() or still.advance(0.1), "the wait is over")
        assert answer.result() == {"events": [], "next": since}


def test_waits_and_cursors_have_bounds(server):
    for query in ("wait=26", "since=-1", "since=x", "since=1832960000256000", "sinc=1"):
        server.admin().get(f"/admin/v1/events?{query}").problem(400, "invalid-query")


def service_time(server):
    """Requests of operators that were answered, and the time that they took."""
    text = server.admin().get("/metrics").body.decode()
    found = dict(re.findall(r'^umbo_request_duration_seconds_(sum|count)\{operation="admin"\} (\S+)$', text, re.M))
    return int(found["count"]), float(found["sum"])


def test_a_wait_for_an_event_is_no_service_time(server, still):
    cursor = events(server)["next"]

    def waited_for_nothing():
        count, took = service_time(server)
        with listener(server, cursor, 3) as answer:
            wait_until(lambda: answer.done() or still.advance(3), "the wait is over")
        assert answer.result()["events"] == []
        # It is counted after its answer.
        wait_until(lambda: service_time(server)[0] == count + 1, "the request is counted")
        return service_time(server)[1] == took

    # Time that passes between the beginning of a request and that of its wait is one of service.
    wait_until(waited_for_nothing, "a request has waited in no time")


def test_a_client_that_leaves_while_it_waits_is_no_failure(server):
    failed = lambda: server.metric('umbo_request_outcomes_total{operation="admin",tier="unknown",outcome="failed"}')
    before, cursor = failed(), events(server)["next"]
    sock = socket.create_connection(("127.0.0.1", server.admin_port))
    sock.sendall(f"GET /admin/v1/events?since={cursor}&wait=25 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wait_until(lambda: waiting(server) == 1, "the request waits")
    sock.close()
    wait_until(lambda: waiting(server) == 0, "the server has noticed")
    assert failed() == before


def test_changes_outlive_a_restart(new_server):
    server = new_server().start()
    server.namespace("kept")
    assert last(server, "namespace-created")["subject"] == "kept"
    server.stop()
    server.start()
    told = [one["kind"] for one in events(server)["events"]]
    assert told.count("namespace-created") == 1 and told[-1] == "started"
    assert len({one["id"] for one in events(server)["events"]}) == len(told)
