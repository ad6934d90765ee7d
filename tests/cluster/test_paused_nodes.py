"""A shard node that stands still (SIGSTOP): its shards are refused in time, all others are served, and
afterwards everything goes on by itself.
"""

from deadline import Waiting, answers_at_deadline, asked_of, standing_still
from harness import Namespace, wait_until
from writers import ACKNOWLEDGED, PATIENT_MS, Writer, check, total

TIMEOUT_MS = 800
# How much earlier than its deadline a request is answered that has rows of other nodes to tell.
TELLING_MS = 5


def test_a_request_to_a_node_that_stands_still_is_answered_at_its_deadline(single):
    (dispatcher,) = single.dispatchers
    partitions = {name: own[0] for name, own in single.partitions(dispatcher.namespace("late"), 1).items()}
    victim, *others = partitions
    new = lambda: Namespace(dispatcher.client(), "late")
    headers = {"Umbo-Timeout-Ms": str(TIMEOUT_MS), "Cache-Control": "no-cache"}
    for one in partitions.values():
        assert new().put(one, "read", value=b"x").status == 201
    node = single.nodes[victim]
    with standing_still(dispatcher.clock):
        wait_until(lambda: dispatcher.in_flight() == 0, "nobody asks")
        node.pause()
        try:
            asks = [lambda ask=ask: ask(partitions[victim], "read", **headers) for ask in (new().get, new().put)]
            read, written = answers_at_deadline(dispatcher, TIMEOUT_MS, *asks)
            # No time is left for anybody to find out about the node; the others are served.
            for name in others:
                assert new().get(partitions[name], "read", **headers).body == b"x"
        finally:
            node.resume()
    assert not read.problem(504, "deadline-in-store").get("outcome") == "unknown"
    assert written.problem(504, "deadline-in-store")["outcome"] == "unknown"


def test_a_node_that_stands_still_is_waited_for_no_longer_than_asked(single):
    (dispatcher,) = single.dispatchers
    ns = dispatcher.namespace("pause")
    partitions = single.partitions(ns, 6)
    for own in partitions.values():
        for partition in own:
            assert ns.put(partition, "read", value=b"x").status == 201
    victim, *others = list(partitions)
    timeout_ms = {name: TIMEOUT_MS if name == victim else PATIENT_MS for name in partitions}
    writers = {
        name: [
            Writer(dispatcher.client, "pause", one, f"{name}-{at}", at % 3 == 2, timeout_ms[name])
            for at, one in enumerate(own)
        ]
        for name, own in partitions.items()
    }
    everybody = [writer for own in writers.values() for writer in own]
    [writer.start() for writer in everybody]
    wait_until(lambda: total(everybody) >= 200, "the writers write")
    others_of = lambda: total(writers[others[0]] + writers[others[1]])
    single.nodes[victim].pause()
    codes, others_before = set(), others_of()

    def is_noticed():
        for name, own in partitions.items():
            # Past the layer that could know the answer.
            answer = ns.get(own[0], "read", Cache_Control="no-cache", Umbo_Timeout_Ms=str(timeout_ms[name]))
            if name == victim:
                code = answer.json()["type"].rpartition("/")[2]
                answer.problem(answer.status, code)
                codes.add((answer.status, code))
            else:
                assert answer.status == 200 and answer.body == b"x", answer
        return (503, "shard-unavailable") in codes and others_of() > others_before + 100

    try:
        wait_until(is_noticed, "it is noticed, and the others go on")
    finally:
        single.nodes[victim].resume()
    assert {status for status, _ in codes} <= {503, 504}, codes
    # A write that was only late is applied before one that its writer has sent later.
    before = {writer: writer.acknowledged() for writer in writers[victim]}
    found_again = lambda: all(writer.acknowledged() >= before[writer] + 10 for writer in writers[victim])
    wait_until(found_again, "it is found again by itself")
    [writer.end() for writer in everybody]
    for name in others:
        for writer in writers[name]:
            assert not writer.problems, writer.problems[:1]
    counts = check(Namespace(dispatcher.client(), "pause"), everybody)
    assert counts[ACKNOWLEDGED] > 200
    print(counts, codes)


def test_rows_of_other_nodes_are_told_before_a_node_is_known_to_stand_still(single):
    """A deadline that passes before anybody can know costs only the rows of the node that says nothing."""
    (dispatcher,) = single.dispatchers
    ns = dispatcher.namespace("told")
    partitions = single.partitions(ns, 40)
    keys = [(name, one) for own in zip(*partitions.values()) for name, one in zip(partitions, own)]
    assert ns.write([{"pk": one, "v": one} for _, one in keys]).status == 200
    headers = {"Umbo-Timeout-Ms": str(TIMEOUT_MS), "Cache-Control": "no-cache"}
    reads = lambda: ns.multi_get([{"pk": one} for _, one in keys], headers=headers)
    writes = lambda: ns.write([{"pk": one, "sk": "more", "v": one} for _, one in keys], headers=headers)
    # Each while another node has just begun to stand still.
    for victim, ask, expected in (("b", reads, 200), ("c", writes, 201)):
        with standing_still(dispatcher.clock):
            wait_until(lambda: dispatcher.in_flight() == 0, "nobody asks")
            single.nodes[victim].pause()
            try:
                waiting = Waiting(ask)
                # All but the rows of the victim are there: nobody else is asked any more, nor between two pieces.
                asked = lambda: {name for name in single.nodes if asked_of(dispatcher, name) > 0}
                wait_until(lambda: all(asked() == {victim} for _ in range(3)), "only the victim is waited for")
                dispatcher.clock.advance((TIMEOUT_MS - TELLING_MS) / 1_000)
                (answer,) = waiting.answers()
            finally:
                single.nodes[victim].resume()
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
            assert single.tier.owner(error["shard"]) == victim, line
            assert ask is reads or error["outcome"] == "unknown" and not error["retry"]["safe"], line
        wait_until(lambda: ns.put(partitions[victim][0], "after").status in (201, 204), "it goes on")
    # Nothing that was acknowledged is lost.
    rows = {(row["pk"], row["sk"]) for row in ns.scan_all()}
    assert rows >= {(one, "") for _, one in keys} | {(one, "more") for name, one in keys if name != "c"}


def test_many_rows_are_answered_for_row_by_row_while_a_node_stands_still(single):
    """Multi-gets and batches serve what can be served; a scan says that it could not."""
    (dispatcher,) = single.dispatchers
    ns = dispatcher.namespace("many")
    partitions = single.partitions(ns, 5)
    keys = [(name, one) for name, own in partitions.items() for one in own]
    assert ns.write([{"pk": one, "v": one} for _, one in keys]).status == 200
    victim = "b"
    single.nodes[victim].pause()
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
        single.nodes[victim].resume()
    wait_until(
        lambda: all(ns.put(one, "after", value=b"x").status in (201, 204) for one in partitions[victim]),
        "it is found again by itself",
    )
    assert {row["pk"] for row in ns.scan_all() if row["sk"] == ""} == {one for _, one in keys}
