"""Idempotency-Key: the second of two equal requests changes nothing and is answered as the first was."""

import concurrent.futures
import json

import pytest

from harness import Client

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")


def replayed(answer):
    return answer.headers.get("umbo-replayed") == "?1"


def patch(ns, partition, sort=None, **headers):
    return ns.client.request("PATCH", ns.path(partition, sort), headers={
        name.replace("_", "-"): value for name, value in headers.items()})  # fmt: skip


def comparable(answer):
    """What the second answer must have of the first."""
    names = ("etag", "umbo-existed", "umbo-outcome", "umbo-problem", "content-type")
    problem = answer.json() if "umbo-problem" in answer.headers else None
    body = problem and {name: problem[name] for name in ("type", "status", "detail", "outcome")}
    return answer.status, [answer.headers.get(name) for name in names], body or answer.body


def test_a_repeated_put_is_answered_as_the_first_was(ns):
    first = ns.put("p", "s", b"one", idempotency_key='"k1"')
    assert first.status == 201 and not replayed(first), first
    between = ns.put("p", "s", b"between")
    again = ns.put("p", "s", b"one", idempotency_key='"k1"')
    assert replayed(again) and comparable(again) == comparable(first), again
    row = ns.get("p", "s")
    assert (row.body, row.headers["etag"]) == (b"between", between.headers["etag"])
    # Quotes are not part of the key, and what does not change the outcome is not part of the request.
    for headers in ({"idempotency_key": "k1"}, {"idempotency_key": '"k1"', "umbo_durability": "async"}):
        assert replayed(ns.put("p", "s", b"one", **headers))


def test_a_put_is_recognised_however_it_is_stored(ns):
    text = b"a value that repeats itself; " * 40
    rows = [{"pk": "b", "v": text.decode()}]
    first = ns.put("p", "s", text, idempotency_key="k")
    batch = ns.write(rows, headers={"idempotency-key": "b"})
    path = f"/admin/v1/namespaces/{ns.name}"
    assert ns.client.request("PATCH", path, b'{"compression":"zstd"}').status == 200
    again = ns.put("p", "s", text, idempotency_key="k")
    assert replayed(again) and comparable(again) == comparable(first), again
    again = ns.write(rows, headers={"idempotency-key": "b"})
    assert again.batch()[0]["replayed"] and batch.status == again.status, again


def test_deletes_increments_and_touches_are_repeated_too(ns):
    ns.put("p", "n", b"40")
    first = patch(ns, "p", "n", umbo_increment="2", idempotency_key="i")
    assert (first.status, first.body, replayed(first)) == (200, b"42", False), first
    again = patch(ns, "p", "n", umbo_increment="2", idempotency_key="i")
    assert replayed(again) and comparable(again) == comparable(first), again
    assert ns.get("p", "n").body == b"42"
    tag = first.headers["etag"]
    first = patch(ns, "p", "n", umbo_ttl="60", if_match=tag, idempotency_key="t")
    assert first.status == 204 and not replayed(first), first
    # The condition is false by now, and then the row is gone: the touch was applied nevertheless.
    for _ in range(2):
        again = patch(ns, "p", "n", umbo_ttl="60", if_match=tag, idempotency_key="t")
        assert replayed(again) and comparable(again) == comparable(first), again
        ns.delete("p", "n")
    patch(ns, "p", "n", umbo_ttl="60", if_match=tag, idempotency_key="t2").problem(412, "precondition-failed")
    ns.put("p", "n", b"v")
    first = ns.delete("p", "n", idempotency_key="d")
    assert first.headers["umbo-existed"] == "true"
    again = ns.delete("p", "n", idempotency_key="d")
    assert replayed(again) and comparable(again) == comparable(first), again
    assert ns.delete("p", "n").headers["umbo-existed"] == "false"


def test_refusals_by_what_is_stored_are_repeated(ns):
    ns.put("p", "s", b"v")
    refused = ns.put("p", "s", b"w", if_none_match="*", idempotency_key="c")
    refused.problem(412, "precondition-failed")
    text = patch(ns, "p", "s", umbo_increment="1", idempotency_key="n")
    assert text.problem(409, "not-a-number")["outcome"] == "not-applied"
    ns.delete("p", "s")
    again = ns.put("p", "s", b"w", if_none_match="*", idempotency_key="c")
    assert replayed(again) and comparable(again) == comparable(refused), again
    again = patch(ns, "p", "s", umbo_increment="1", idempotency_key="n")
    assert replayed(again) and comparable(again) == comparable(text), again
    assert ns.get("p", "s").status == 404


def test_another_request_with_the_key_is_refused(ns):
    assert ns.put("p", "s", b"v", idempotency_key="k").status == 201
    others = [
        ns.put("p", "s", b"w", idempotency_key="k"),
        ns.put("p", "other", b"v", idempotency_key="k"),
        ns.put("p", "s", b"v", idempotency_key="k", umbo_ttl="60"),
        ns.put("p", "s", b"v", idempotency_key="k", if_match="*"),
        ns.put("p", "s", b"v", idempotency_key="k", content_type="text/x"),
        ns.delete("p", "s", idempotency_key="k"),
        patch(ns, "p", "s", idempotency_key="k", umbo_increment="1"),
        patch(ns, "p", "s", idempotency_key="k", umbo_ttl="60"),
    ]
    for answer in others:
        problem = answer.problem(422, "idempotency-mismatch")
        assert problem["outcome"] == "not-applied" and not problem["retry"]["safe"], problem
    batch = ns.write([{"pk": "p", "sk": "s", "v": "v"}], headers={"Idempotency-Key": "k"}).lines()
    assert batch[0]["status"] == 422 and batch[-1]["end"]["failed"] == 1, batch
    assert ns.get("p", "s").body == b"v"
    # The key is one of its caller, in one namespace and partition.
    assert not replayed(ns.put("q", "s", b"w", idempotency_key="k"))


@pytest.mark.parametrize("key", ["", '""', "two words", '"open', '"a"b', '"a";x=1', "x" * 256, "é"])
def test_a_malformed_key_is_refused(ns, key):
    answer = ns.put("p", "s", b"v", idempotency_key=key.encode())
    assert "idempotency-key" in answer.problem(400, "invalid-header")["detail"]
    assert ns.get("p", "s").status == 404


def test_keys_are_kept_for_as_long_as_is_asked(ns, still):
    for ttl in ("0", "86401", "25h", "x"):
        ns.put("p", value=b"v", idempotency_key="k", umbo_idempotency_ttl=ttl).problem(400, "invalid-header")
    ns.put("p", value=b"v", umbo_idempotency_ttl="60").problem(400, "invalid-header")
    ns.put("p", value=b"v", idempotency_key="day", umbo_idempotency_ttl="24h")
    repeat_short = lambda: ns.put("p", value=b"v", idempotency_key="short", umbo_idempotency_ttl="1s")
    assert not replayed(repeat_short())
    still.advance(0.99)
    assert replayed(repeat_short())
    still.advance(0.01)
    assert not replayed(repeat_short()), "a record of one second is still in effect"
    assert replayed(ns.put("p", value=b"v", idempotency_key="day"))


def test_a_batch_is_answered_row_by_row_as_it_was(ns):
    ns.put("p3", "taken", b"v")
    rows = [{"op": "inc", "pk": f"p{at % 5}", "sk": str(at), "by": at} for at in range(20)]
    rows += [{"pk": "p3", "sk": "taken", "v": "w", "if_none_match": "*"}, {"pk": 7}]
    first = ns.write(rows, headers={"Idempotency-Key": "b"})
    assert first.status == 207 and not replayed(first), first
    *lines, end = first.batch()
    assert [line.get("number") for line in lines[:20]] == list(range(20))
    assert [line["status"] for line in lines[18:]] == [201, 201, 412, 400] and end["end"]["failed"] == 2
    ns.delete("p3", "taken")
    again = ns.write(rows, headers={"Idempotency-Key": "b"})
    assert again.status == 207 and replayed(again), again
    *repeated, end = again.batch()
    assert all(line.pop("replayed") for line in repeated[:21]), repeated
    assert "replayed" not in repeated[21] and repeated == lines and end["end"]["failed"] == 2
    assert ns.get("p3", "taken").status == 404 and ns.get("p2", "7").body == b"7"
    atomic = [{"op": "inc", "pk": "a", "sk": str(at), "by": 1} for at in range(3)]
    atomic.append({"pk": "a", "sk": "x", "v": "v", "if_match": "*"})
    for is_again in (False, True):
        answer = ns.write(atomic, "?atomic=partition", headers={"Idempotency-Key": "a"})
        assert answer.status == 207 and replayed(answer) == is_again, answer
        assert [line["status"] for line in answer.lines()[:-1]] == [412] * 4
    assert ns.get("a", "0").status == 404
    # Another body, and the same body with other groups.
    for other, query in ((atomic[:2], "?atomic=partition"), (atomic, "")):
        answer = ns.write(other, query, headers={"Idempotency-Key": "a"})
        assert {line["status"] for line in answer.lines()[:-1]} == {422}, answer


def test_equal_requests_at_the_same_time_are_applied_once(server, ns):
    def send(at):
        client = server.client()
        path = ns.path(f"p{at // 8}", "n")
        return client.request("PATCH", path, headers={"Umbo-Increment": "3", "Idempotency-Key": f"k{at // 8}"})

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(send, range(160)))
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"3")}
    for at in range(0, 160, 8):
        assert sum(not replayed(answer) for answer in answers[at : at + 8]) == 1
        assert len({answer.headers["etag"] for answer in answers[at : at + 8]}) == 1


def test_keys_of_callers_are_apart(new_server):
    server = new_server().start()
    tokens = []
    for name, grant in (("root", "*:*"), ("other", "*:*")):
        client = server.client(token=tokens[0] if tokens else None)
        tokens.append(client.post("/admin/v1/tokens", {"name": name, "grants": [grant]}).json()["token"])
    root, other = (Client(server.port, token) for token in tokens)
    assert root.put("/admin/v1/namespaces/demo").status == 201
    assert root.put("/v1/ns/demo/kv/p/s", b"v", idempotency_key="k").status == 201
    answer = other.put("/v1/ns/demo/kv/p/s", b"w", idempotency_key="k")
    assert answer.status == 204 and not replayed(answer), answer


def test_a_delete_of_a_range_takes_no_key(ns):
    ns.put("p", "s", b"v")
    answer = ns.client.delete(f"{ns.base}/range/p?all=true", idempotency_key="k")
    assert "idempotency-key" in answer.problem(400, "invalid-header")["detail"]
    assert ns.get("p", "s").body == b"v"


def test_a_record_is_charged_as_written_bytes(ns, still):
    value = b"v" * 4_096
    plain = float(ns.put("p", "s", value).headers["umbo-ru"])
    keyed = float(ns.put("p", "s", value, idempotency_key="k").headers["umbo-ru"])
    again = float(ns.put("p", "s", value, idempotency_key="k").headers["umbo-ru"])
    # The time of the store is charged too; here it takes none.
    of_record = (64 + 1 + 16) / 4_096
    assert keyed - plain == pytest.approx(of_record, abs=1e-5), (plain, keyed)
    assert again == pytest.approx(6.05, abs=1e-5), again
    ask = {"operation": "put", "pk": "p", "sk": "s", "bytes": 4_096}
    explain = [
        ns.client.post(f"{ns.base}/explain", json.dumps(ask | more)).json()["breakdown"]["write_bytes"]
        for more in ({}, {"idempotent": True})
    ]
    assert explain[1] - explain[0] == pytest.approx(of_record, abs=1e-5), explain
