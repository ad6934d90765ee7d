"""Loads end as they would have, whatever is killed, refused or away meanwhile; and leave nothing behind."""

import json
import random
import threading

import pytest

from bulk import restart, step_until
from bulk_loads import ENDED, Load, lines, load_rows
from harness import IS_CLUSTER, Namespace, wait_until

ROWS = 12_000


def dataset(seed):
    numbers = random.Random(seed)
    return [{"pk": f"p{n % 97}", "sk": f"{n:06}", "v": numbers.randbytes(40).hex()} for n in range(ROWS)]


def parts_of(rows, count):
    size = -(-len(rows) // count)
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def rows_of(ns):
    return {(row["pk"], row["sk"]): row["v"] for row in ns.scan_all()}


def expected(rows):
    return {(row["pk"], row["sk"]): row["v"] for row in rows}


def uploaded(client, rows, count=3, **spec):
    load = Load.create(client, "demo", **spec)
    for number, part in enumerate(parts_of(rows, count)):
        assert load.put(number, lines(part)).status == 201
    return load


def slow(server, rate, burst):
    """Paces what is applied by a clock that stands still from here on, but for the steps of the test."""
    policy = {"name": "slow", "match": {"operations": ["batch-write"]}, "per": ["caller"], "unit": "writes"}
    policy |= {"rate": rate, "burst": burst}
    made = server.client().put("/admin/v1/quotas/slow", json.dumps(policy).encode())
    assert made.status == 201, made
    server.clock.stop()


def end_of_slow(server, load):
    """Lifts the quota; returns the load once it is live."""
    # A node that was away is asked again after some time.
    server.clock.go()
    assert server.client().delete("/admin/v1/quotas/slow").status == 200
    info = step_until(server.clock, lambda: (info := load.info())["state"] in ENDED and info, "the load ends")
    assert info["state"] == "live", info
    return info


def goals(kills):
    """After how many rows to kill; the last one leaves a fourth of them."""
    part, numbers = ROWS // (kills + 1), random.Random(8)
    return [numbers.randrange(part * kill, part * (kill + 1)) for kill in range(kills)]


def stored_rows(server):
    """Rows in all shards, with the few of Umbo's own."""
    return server.metric("umbo_shard_rows")


def stored_bytes(server):
    """Bytes of all rows in all shards, whosever they are."""
    return server.metric("umbo_shard_live_bytes")


def reclaimed(server, more):
    """Waits until the shards store the rows and little more: the bytes of the parts are reclaimed."""

    def is_reclaimed():
        size = server.client().get("/admin/v1/namespaces/demo").json()["size"]
        return size["rows"] == ROWS and stored_bytes(server) <= size["bytes"] + more

    wait_until(is_reclaimed, f"at most {more} bytes are stored beside the rows")


@pytest.mark.parametrize("kills", [3])
def test_a_server_that_is_killed_again_and_again_ends_the_load_once(new_server, kills):
    server = new_server().start()
    ns = server.namespace("demo")
    rows = dataset(1)
    empty = stored_bytes(server)
    load = uploaded(ns.client, rows, expected_rows=ROWS)
    of_parts = sum(part["bytes"] for part in load.info()["parts"])
    wait_until(lambda: stored_bytes(server) >= empty + of_parts, "the parts are stored")
    slow(server, ROWS, burst=ROWS // 20)
    load.seal(3)
    for goal in goals(kills):
        step_until(server.clock, lambda: stored_rows(server) >= goal, f"{goal} rows are applied")
        assert stored_rows(server) < ROWS
        restart(server)
        load = load.through(server.client())
    info = end_of_slow(server, load)
    assert (info["rows_applied"], info["rows_skipped"]) == (ROWS, 0)
    assert [part["applied"] for part in info["parts"]] == [4_000] * 3
    ns = Namespace(server.client(), "demo")
    assert rows_of(ns) == expected(rows)
    reclaimed(server, empty + of_parts // 10)


def test_an_upload_survives_the_server(new_server):
    server = new_server().start()
    ns = server.namespace("demo")
    rows = dataset(2)
    body = lines(rows)
    load = Load.create(ns.client, "demo")

    def send(client):
        try:
            load.through(client).put(0, body)
        except OSError:
            pass

    sender = threading.Thread(target=send, args=(server.client(),))
    sender.start()
    wait_until(lambda: load.offset(0) is not None, "the upload has begun")
    server.kill()
    sender.join()
    server.start()
    load = load.through(server.client())
    kept, complete = load.offset(0)
    if not complete:
        assert load.patch(0, body[kept:], kept, True, content_type=None).status == 204
    assert load.put(0, body).status == 200, "it is the same part"
    load.seal(1)
    load.wait_for("live")
    assert rows_of(Namespace(server.client(), "demo")) == expected(rows)


def test_a_load_is_paced_by_the_quota_of_who_created_it(new_server):
    server = new_server().start()
    ns = server.namespace("demo")
    rows = dataset(3)[:6_000]
    load = uploaded(ns.client, rows, 1)
    slow(server, 1_000, burst=100)
    load.seal(1)
    # In steps that leave a slow machine the time to write: what is late waits for another reason.
    waits = lambda: "slow" in (info := load.info()).get("reason", "") and info
    waiting = step_until(server.clock, waits, "it waits", step=0.05)
    assert waiting["state"] == "building"
    # Others are served meanwhile.
    assert ns.put("other", value=b"x").status == 201
    info = end_of_slow(server, load)
    assert info["rows_applied"] == 6_000 and "reason" not in info
    assert len(ns.scan_all()) == 6_001


def test_an_aborted_load_stops_where_it_is(new_server):
    server = new_server().start()
    ns = server.namespace("demo")
    load = uploaded(ns.client, dataset(4))
    slow(server, 100, burst=500)
    load.seal(3)
    step_until(server.clock, lambda: load.info().get("reason"), "it waits")
    assert load.post("abort").json()["state"] == "aborted"
    assert load.info()["ended_at"] >= load.info()["created_at"]
    before = len(ns.scan_all())
    assert before < ROWS and len(load.info()["parts"]) == 3
    # The next load is not kept waiting by it.
    server.clock.go()
    assert ns.client.delete("/admin/v1/quotas/slow").status == 200
    _, info = load_rows(ns.client, "demo", [{"pk": "next", "v": "x"}])
    assert info["rows_applied"] == 1 and len(ns.scan_all()) == before + 1


def test_rows_of_services_win_while_a_load_is_applied(new_server):
    server = new_server().start()
    ns = server.namespace("demo")
    rows = dataset(5)
    load = uploaded(ns.client, rows)
    stop, written = threading.Event(), {}

    def write():
        own, numbers = Namespace(server.client(), "demo"), random.Random(6)
        while not stop.is_set():
            row = numbers.choice(rows)
            value = numbers.randbytes(8).hex()
            assert own.put(row["pk"], row["sk"], value.encode()).status in (201, 204)
            written[row["pk"], row["sk"]] = value

    writer = threading.Thread(target=write)
    writer.start()
    wait_until(lambda: written, "a row is written")
    load.seal(3)
    info = load.wait_for("live")
    stop.set()
    writer.join()
    assert info["rows_applied"] + info["rows_skipped"] == ROWS
    assert rows_of(ns) == expected(rows) | written


@pytest.mark.skipif(not IS_CLUSTER, reason="about nodes behind a dispatcher")
def test_nodes_that_are_killed_do_not_end_a_load(new_server):
    server = new_server().start()
    ns = server.namespace("demo")
    rows = dataset(7)
    load = uploaded(ns.client, rows)
    slow(server, ROWS, burst=ROWS // 20)
    load.seal(3)
    for goal, node in zip(goals(3), server.tier.nodes.values()):
        step_until(server.clock, lambda: stored_rows(server) >= goal, f"{goal} rows are applied")
        assert stored_rows(server) < ROWS
        node.kill()
        node.launch()
        step_until(server.clock, lambda: node.readiness() == 200, "the node serves")
    ns = Namespace(server.client(), "demo")
    end_of_slow(server, load.through(ns.client))
    assert rows_of(ns) == expected(rows)


def test_loads_that_wait_keep_no_other_load_out(new_server):
    server = new_server().start()
    stuck, free = server.namespace("stuck"), server.namespace("free")
    waiting = [Load.create(stuck.client, "stuck") for _ in range(8)]
    for number, load in enumerate(waiting):
        assert load.put(0, lines([{"pk": f"{number}-{n}", "v": "x"} for n in range(20_000)])).status == 201
    for load in waiting:
        load.seal(1)
    # They are begun; the rest of their rows would take days.
    policy = {"name": "slow", "match": {"namespace": "stuck", "operations": ["batch-write"]}, "per": ["namespace"]}
    policy |= {"unit": "writes", "rate": 1, "burst": 200}
    assert server.client().put("/admin/v1/quotas/slow", json.dumps(policy)).status == 201
    reasons = lambda: [load.info().get("reason", "") for load in waiting]
    wait_until(lambda: sum("slow" in reason for reason in reasons()) >= 4, "all places have a run that waits")
    wait_until(lambda: any("turn" in reason for reason in reasons()), "the others say that they wait for their turn")
    # Each time: a run that waits has given its place back, and another has taken it up meanwhile.
    for number in range(3):
        _, info = load_rows(free.client, "free", [{"pk": f"p{number}", "v": "x"}])
        assert info["state"] == "live" and info["rows_applied"] == 1
    assert sum(load.info()["state"] in ("sealed", "building") for load in waiting) > 4
    assert server.client().delete("/admin/v1/quotas/slow").status == 200
    for load in waiting[:-1]:
        load.post("abort")
    assert waiting[-1].wait_for("live")["rows_applied"] == 20_000


def test_of_many_requests_that_send_the_same_bytes_at_once_the_newest_makes_the_part_whole(new_server):
    server = new_server().start()
    ns = server.namespace("demo")
    rows = dataset(3)
    body = lines(rows)
    load = Load.create(ns.client, "demo")
    answers = []

    def send(client):
        answers.append(load.through(client).patch(0, body, 0, complete=True).status)

    threads = [threading.Thread(target=send, args=(server.client(),)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 204 in answers and set(answers) <= {204, 409}, answers
    assert load.offset(0) == (len(body), True)
    load.seal(1)
    load.wait_for("live")
    assert rows_of(ns) == expected(rows)
