"""A shard that cannot keep up sheds what matters least, says so, and recovers by itself."""

import concurrent.futures

import pytest

from crowd import LONG_TIMEOUT_MS, PATIENCE_SECONDS, PERMITS, STEP_SECONDS, TIMEOUT_MS, Write
from harness import wait_until

SHED_STATUS = 503
of_one_shard = pytest.mark.redb("the shards of a node of Cassandra are held together")


def statuses(answers):
    return {answer.status for answer in answers}


def shed_crowd(shard, count=40):
    """A crowd behind permits that are taken, all of it shed; the permits are taken still. Returns the answers."""
    crowd = shard.crowd(count)
    shard.advance_until(lambda: shard.shed().get("sheddable") == count, "all of them are shed")
    return [write.answer() for write in crowd]


def test_the_lowest_tier_goes_first_and_each_is_told_why(shard):
    shard.hold()
    # A time that is over before the queue of the critical tier counts as overloaded.
    time = {"timeout_ms": 400}
    served = shard.occupy() + shard.crowd(20, "critical", "critical-", **time)
    lesser = shard.crowd(40, **time)
    # A look that is late by a step makes the queue begin anew to wait for its interval, in all tiers alike.
    for number in range(30):
        shard.server.clock.advance(0.01)
        served.append(shard.look(number))
        if shard.shed():
            break
    assert shard.shed() == {"sheddable": 40}, "what matters more is not shed before what matters less"
    for write in lesser:
        answer = write.answer()
        problem = answer.problem(SHED_STATUS, "overloaded")
        assert problem["tier"] == "sheddable" and problem["scope"] == "shard"
        assert problem["signal"] in ("queue-delay", "queue-length", "queue-displaced")
        assert problem["retry"]["safe"] and problem["retry"]["after_ms"] >= 20
        assert problem["outcome"] == "not-applied"
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["umbo-retry-after-ms"] == str(problem["retry"]["after_ms"])
        assert answer.headers["umbo-ru"] == "0"
    record = shard.server.client().get(f"/admin/v1/why/{problem['request_id']}").json()
    assert (record["code"], record["criticality"], record["shard"]) == ("overloaded", "sheddable", problem["shard"])
    assert record["queue"]["limit"] == PERMITS and "Shard" in record["text"], record
    # No policy refused it, and it was charged nothing.
    assert record["policies"] == [] and "estimate_ru" not in record
    shard.commits.let_go()
    assert statuses(write.answer() for write in served) == {201}
    assert shard.shed() == {"sheddable": 40}


def test_a_floor_is_kept_for_the_lowest_tier(shard):
    """Behind a queue of what matters more, which never empties, one is served now and then."""
    shard.hold()
    time = {"timeout_ms": LONG_TIMEOUT_MS}
    writes = shard.occupy() + shard.crowd(80, "critical", "critical-", **time) + shard.crowd(1, **time)

    def is_served():
        # One commit in each step of time.
        if shard.commits.waiting():
            shard.commits.let_pass()
        return shard.tier("sheddable")["waiting"] == 0

    shard.advance_until(is_served, "the lesser one is served")
    assert shard.tier("critical")["waiting"] > 0, "it did not wait until all others were served"
    shard.commits.let_go()
    assert statuses(write.answer() for write in writes) == {201}
    assert shard.shed() == {}


def test_after_the_crowd_everything_is_served_at_once(shard):
    shard.hold()
    permits = shard.occupy()
    shed = shed_crowd(shard)
    shard.commits.let_go()
    assert statuses(write.answer() for write in permits) == {201}
    # As long as anybody was told to stay away.
    shard.server.clock.advance(max(answer.json()["retry"]["after_ms"] for answer in shed) / 1_000)
    answers = [shard.ns.put("p", "after", b"x", Umbo_Criticality="sheddable") for _ in range(50)]
    assert [answer.status for answer in answers] == [201] + [204] * 49


@of_one_shard
def test_a_crowd_on_one_shard_is_none_of_the_others_business(shard):
    others = [f"other-{number}" for number in range(60)]
    shards = {name: shard.of(name) for name in others}
    shard.hold()
    shard.occupy()
    crowd = shard.crowd(20)
    free = [name for name in others if shards[name] != shard.number]
    assert len(free) >= 30, shards
    # They are served while everything waits at the one that is busy.
    answers = [shard.ns.put(name, value=b"x", Umbo_Criticality="sheddable") for name in free]
    assert statuses(answers) == {201}
    path = "{}/kv/{}".format
    same = [
        Write(shard.server, "sheddable", path(shard.ns.base, name))
        for name in others
        if shards[name] == shard.number
    ]
    count = len(crowd + same)
    wait_until(lambda: shard.arrived() == PERMITS + count, "they wait with the crowd")
    shard.advance_until(lambda: shard.shed().get("sheddable") == count, "all of them are shed")
    for write in crowd + same:
        write.answer().problem(SHED_STATUS, "overloaded")


def test_a_crowd_that_has_time_is_served_whole(shard):
    shard.hold()
    writes = shard.occupy() + shard.crowd(40, timeout_ms=LONG_TIMEOUT_MS)
    # Others would have been shed long before; these may wait for a tenth of their time.
    wait = LONG_TIMEOUT_MS / 1_000 / 10 - 2 * STEP_SECONDS
    assert wait > 2 * PATIENCE_SECONDS
    shard.advance(wait)
    assert shard.status()["queue"]["waiting"] == 40
    shard.commits.let_go()
    assert statuses(write.answer() for write in writes) == {201}
    assert shard.shed() == {}


@of_one_shard
def test_rows_of_a_batch_are_shed_shard_by_shard(shard):
    rows = [{"op": "put", "pk": f"k{number}", "v": "x"} for number in range(40)]
    rows.append({"op": "put", "pk": shard.partition, "sk": "b", "v": "x"})
    is_busy = [shard.of(row["pk"]) == shard.number for row in rows]
    assert 1 < is_busy.count(True) < len(rows) - 1
    shard.hold()
    shard.occupy()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        headers = {"Umbo-Criticality": "sheddable", "Umbo-Timeout-Ms": str(TIMEOUT_MS)}
        batch = pool.submit(shard.ns.write, rows, headers=headers)
        shard.advance_until(batch.done, "it is answered")
    answer = batch.result()
    assert answer.status == 207, answer
    *lines, last = answer.batch()
    shed = [line for line in lines if line["status"] == SHED_STATUS]
    assert [line["status"] == SHED_STATUS for line in lines] == is_busy
    assert {line["status"] for line in lines} == {201, SHED_STATUS}
    assert len(shed) == last["end"]["failed"]
    assert all(line["error"]["type"].endswith("/overloaded") for line in shed), shed
    assert all(line["error"]["outcome"] == "not-applied" for line in shed)


def test_nobody_is_charged_for_what_was_shed(shard):
    shard.hold()
    permits = shard.occupy()
    shed = shed_crowd(shard)
    assert {answer.headers["umbo-ru"] for answer in shed} == {"0"}
    shard.commits.let_go()
    served = [write.answer() for write in permits]
    assert statuses(served) == {201}
    spent = shard.server.metric('umbo_request_units_total{operation="put"}')
    assert round(spent * 1e6) == sum(round(float(answer.headers["umbo-ru"]) * 1e6) for answer in served) > 0


def test_a_server_that_sheds_nothing_lets_everybody_wait(held_server, commits):
    server = held_server({"overload": {"enabled": False}})
    ns = server.namespace()
    commits.hold()
    server.clock.stop()
    crowd = [Write(server, "sheddable", ns.path("p", f"w{number}"), timeout_ms=LONG_TIMEOUT_MS) for number in range(30)]
    wait_until(lambda: server.in_flight() == 30, "all of them have come")
    # More than a tenth of their time, for which none may wait where requests are shed.
    for _ in range(20):
        server.clock.advance(0.5)
        assert server.in_flight() == 30
    commits.let_go()
    assert statuses(write.answer() for write in crowd) == {201}


def test_a_deadline_passes_in_the_queue_without_a_write(shard):
    shard.hold()
    permits = shard.occupy()
    late = shard.crowd(50, prefix="late-", timeout_ms=2)
    in_time = shard.crowd(5, prefix="in-time-")
    # Two milliseconds are over before it is the turn of any.
    shard.server.clock.advance(0.003)
    for write in late:
        answer = write.answer()
        problem = answer.problem(504, "deadline-before-store")
        assert problem["outcome"] == "not-applied" and problem["retry"]["safe"]
        assert answer.headers["umbo-ru"] == "0"
    shard.commits.let_go()
    assert statuses(write.answer() for write in permits + in_time) == {201}
    # Nothing is begun any more that could be written later.
    assert shard.arrived() == 0
    assert statuses(shard.client.get(write.path) for write in late) == {404}
    assert statuses(shard.client.get(write.path) for write in permits + in_time) == {200}
