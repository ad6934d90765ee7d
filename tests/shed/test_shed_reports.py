"""Whatever is shed shows: in `umbo shed status`, in `umbo shed log` and in the server's log."""

import subprocess

import pytest

from harness import binary, wait_until

CROWD = 40


def umbo(server, *arguments):
    command = [binary(), "--server", f"http://127.0.0.1:{server.port}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("seconds", [0, 2])
def test_all_that_was_shed_is_in_the_log_of_overloads(shard, seconds):
    """However short it was: less than the controller needs to find any pressure."""
    server = shard.server
    shard.hold()
    writes = shard.occupy() + shard.crowd(CROWD)
    shard.advance_until(lambda: shard.shed(), "some are shed")
    shard.advance(seconds)
    shard.commits.let_go()
    answers = [write.answer() for write in writes]
    shed = sum(answer.status == 503 for answer in answers)
    assert shed == CROWD

    def status():
        answer = server.client().get("/admin/v1/shed").json()
        is_over = not any(one.get("under_way") for one in answer["episodes"])
        return answer if answer["episodes"] and is_over else None

    answer = shard.advance_until(status, "the end of the overload")
    assert answer["episodes_total"] == len(answer["episodes"]) < 64, "older ones are forgotten"
    assert sum(sum(one["shed"].values()) for one in answer["episodes"]) == shed
    assert {one["input"] for one in answer["episodes"]} <= {"queue-delay", "latency-ratio"}
    (tier,) = [tier for one in answer["shards"] for tier in one["tiers"] if tier["shed"]]
    assert sum(tier["shed"].values()) == shed
    table = umbo(server, "shed", "status")
    assert f"={shed}" in table.replace(",", " "), table
    assert len(umbo(server, "shed", "log").splitlines()) == 1 + len(answer["episodes"])

    def logged(what):
        return server.log_text().count(what)

    wait_until(lambda: logged("a shard has recovered") == len(answer["episodes"]), "their ends are logged")
    assert logged("a shard is overloaded") == len(answer["episodes"])
    # What was shed stays where it is shown.
    shard.advance(3)
    assert f"={shed}" in umbo(server, "shed", "status").replace(",", " ")
    later = server.client().get("/admin/v1/shed").json()["episodes"]
    # The start is worked out from the age, in whole milliseconds.
    starts = [[one.pop("started_at") for one in episodes] for episodes in (answer["episodes"], later)]
    assert later == answer["episodes"]
    assert all(abs(one - other) <= 1 for one, other in zip(*starts))


def test_the_busy_time_of_a_shard_is_shown_with_its_callers(shard):
    """Two callers, of which one writes values that take longer: capacity, share and callers are those of a second."""
    client = shard.server.client()

    def put(caller, tier, length):
        headers = {"umbo-quota-user": caller, "umbo-criticality": tier}
        answer = client.put(f"{shard.ns.base}/kv/{shard.partition}/{caller}", b"v" * length, **headers)
        assert answer.status in (201, 204), answer

    def busy():
        put("page", "critical", 100)
        put("import", "sheddable", 500_000)
        shard.server.clock.advance(0.25)
        busy = shard.status()["busy"]
        return busy if busy["callers"] == 2 else None

    busy = wait_until(busy, "a second with two callers is over")
    assert 0 < busy["busy_ms"] <= busy["capacity_ms"]
    assert abs(busy["share_ms"] - busy["capacity_ms"] / 2) < 0.001
    assert all(tier.get("held_to_ms") is None for tier in shard.status()["tiers"]), "nobody is held without pressure"
    table = umbo(shard.server, "shed", "status", "--all")
    assert "CAPACITY-MS" in table and "HELD-TO-MS" in table, table
