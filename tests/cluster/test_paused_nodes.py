"""A shard node that stands still (SIGSTOP): its shards are refused in time, all others are served, and
afterwards everything goes on by itself.

It stands still for four seconds; `UMBO_TESTS_PAUSE_SECONDS=10` for longer.
"""

import os
import time

from harness import Namespace, wait_until
from writers import ACKNOWLEDGED, Writer, check

PAUSE_SECONDS = float(os.environ.get("UMBO_TESTS_PAUSE_SECONDS", "4"))
TIMEOUT_MS = 800
# Shorter than it takes to find out that a node stands still.
BRIEF_MS = 600
# How much later than its deadline an answer may come on a machine that is busy with other things.
GRACE_SECONDS = 3


def total(writers):
    return sum(writer.acknowledged() for writer in writers)


def test_a_node_that_stands_still_is_waited_for_no_longer_than_asked(new_cluster):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("pause")
    partitions = cluster.partitions(ns, 6)
    for own in partitions.values():
        for partition in own:
            assert ns.put(partition, "read", value=b"x").status == 201
    writers = {
        name: [Writer(dispatcher.client, "pause", one, f"{name}-{at}", at % 3 == 2, TIMEOUT_MS) for at, one in enumerate(own)]
        for name, own in partitions.items()
    }
    everybody = [writer for own in writers.values() for writer in own]
    [writer.start() for writer in everybody]
    wait_until(lambda: total(everybody) >= 200, "the writers write")
    victim, *others = list(writers)
    cluster.nodes[victim].pause()
    codes, slowest, until = set(), 0, time.monotonic() + PAUSE_SECONDS
    others_before = total(writers[others[0]] + writers[others[1]])
    try:
        while time.monotonic() < until or (503, "shard-unavailable") not in codes:
            assert time.monotonic() < until + 30, f"it is never noticed: {codes}"
            for name, own in partitions.items():
                begun = time.monotonic()
                # Past the layer that could know the answer.
                answer = ns.get(own[0], "read", Cache_Control="no-cache", Umbo_Timeout_Ms=str(TIMEOUT_MS))
                slowest = max(slowest, time.monotonic() - begun)
                if name == victim:
                    code = answer.json()["type"].rpartition("/")[2]
                    answer.problem(answer.status, code)
                    codes.add((answer.status, code))
                else:
                    assert answer.status == 200 and answer.body == b"x", answer
    finally:
        cluster.nodes[victim].resume()
    assert {status for status, _ in codes} <= {503, 504}, codes
    assert slowest < TIMEOUT_MS / 1000 + GRACE_SECONDS, slowest
    assert total(writers[others[0]] + writers[others[1]]) > others_before + 50
    before = total(writers[victim])
    wait_until(lambda: total(writers[victim]) >= before + 60, "it is found again by itself", 60)
    [writer.end() for writer in everybody]
    assert max(writer.slowest() for writer in everybody) < TIMEOUT_MS / 1000 + GRACE_SECONDS
    for name in others:
        for writer in writers[name]:
            assert not writer.problems, writer.problems[:1]
    # What was only late is applied by now; what was said not to be applied never is.
    time.sleep(1)
    counts = check(Namespace(dispatcher.client(), "pause"), everybody)
    assert counts[ACKNOWLEDGED] > 200
    print(counts, codes)
    cluster.stop()


def test_rows_of_other_nodes_are_told_before_a_node_is_known_to_stand_still(new_cluster):
    """A deadline that passes before anybody can know costs only the rows of the node that says nothing."""
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("pause")
    partitions = cluster.partitions(ns, 40)
    keys = [(name, one) for own in zip(*partitions.values()) for name, one in zip(partitions, own)]
    assert ns.write([{"pk": one, "v": one} for _, one in keys]).status == 200
    headers = {"Umbo-Timeout-Ms": str(BRIEF_MS), "Cache-Control": "no-cache"}
    reads = lambda: ns.multi_get([{"pk": one} for _, one in keys], headers=headers)
    writes = lambda: ns.write([{"pk": one, "sk": "more", "v": one} for _, one in keys], headers=headers)
    # Each while another node has just begun to stand still.
    for victim, ask, expected in (("b", reads, 200), ("c", writes, 201)):
        cluster.nodes[victim].pause()
        try:
            begun = time.monotonic()
            answer = ask()
            took = time.monotonic() - begun
        finally:
            cluster.nodes[victim].resume()
        assert answer.status == 207, answer
        *rows, last = answer.lines()
        assert last["end"]["rows"] == len(rows) == len(keys)
        for (name, one), line in zip(keys, rows):
            if name != victim:
                assert line["status"] == expected, line
                continue
            error = line["error"]
            code = error["type"].rpartition("/")[2]
            # Reads are asked for in pieces: the first one is with the node.
            late = ("deadline-in-store", "deadline-before-store")
            assert line["status"] == 504 and code in late[: 2 if ask is reads else 1], line
            assert cluster.tier.owner(error["shard"]) == victim, line
            assert ask is reads or error["outcome"] == "unknown" and not error["retry"]["safe"], line
        assert took < BRIEF_MS / 1000 + GRACE_SECONDS, took
        wait_until(lambda: ns.put(partitions[victim][0], "after").status in (201, 204), "it goes on")
    # Nothing that was acknowledged is lost.
    rows = {(row["pk"], row["sk"]) for row in ns.scan_all()}
    assert rows >= {(one, "") for _, one in keys} | {(one, "more") for name, one in keys if name != "c"}
    cluster.stop()


def test_many_rows_are_answered_for_row_by_row_while_a_node_stands_still(new_cluster):
    """Multi-gets and batches serve what can be served; a scan says that it could not."""
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("pause")
    partitions = cluster.partitions(ns, 5)
    keys = [(name, one) for name, own in partitions.items() for one in own]
    assert ns.write([{"pk": one, "v": one} for _, one in keys]).status == 200
    victim = "b"
    cluster.nodes[victim].pause()
    try:
        # Longer than it takes to find out that it stands still.
        headers = {"Umbo-Timeout-Ms": "5000", "Cache-Control": "no-cache"}
        answer = ns.multi_get([{"pk": one} for _, one in keys], headers=headers)
        assert answer.status == 207, answer
        for (name, one), line in zip(keys, answer.lines()):
            expected = (503, 504) if name == victim else (200,)
            assert line["status"] in expected, line
        answer = ns.write([{"pk": one, "sk": "more", "v": one} for _, one in keys], headers=headers)
        assert answer.status == 207, answer
        for (name, one), line in zip(keys, answer.lines()):
            if name == victim:
                assert line["status"] in (503, 504) and line["error"]["outcome"] in ("not-applied", "unknown"), line
            else:
                assert line["status"] == 201, line
        scanned = ns.scan(headers={"Umbo-Timeout-Ms": str(TIMEOUT_MS)})
        if scanned.status == 200:
            last = scanned.lines()[-1]
            assert "error" in last or last["end"]["more"], "a scan without a node is not complete"
        else:
            assert scanned.status in (503, 504), scanned
    finally:
        cluster.nodes[victim].resume()
    wait_until(
        lambda: all(ns.put(one, "after", value=b"x").status in (201, 204) for one in partitions[victim]),
        "it is found again by itself",
    )
    assert {row["pk"] for row in ns.scan_all() if row["sk"] == ""} == {one for _, one in keys}
    cluster.stop()
