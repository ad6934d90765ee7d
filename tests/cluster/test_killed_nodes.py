"""kill -9 of a shard node in the middle of writes: nothing acknowledged is lost, what is unknown is said to
be, and the rows of other nodes never notice.

Three rounds by default; `UMBO_TESTS_ROUNDS=20` for more.
"""

import os
import time

from harness import Namespace, wait_until
from writers import ACKNOWLEDGED, REFUSED, UNKNOWN, Writer, check

ROUNDS = int(os.environ.get("UMBO_TESTS_ROUNDS", "3"))
WRITERS = 64
TIMEOUT_MS = 2_000
# How much later than its deadline an answer may come on a machine that is busy with other things.
GRACE_SECONDS = 5


def total(writers):
    return sum(writer.acknowledged() for writer in writers)


def test_a_killed_node_takes_nothing_with_it(new_cluster):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("kill")
    names = list(cluster.nodes)
    partitions = cluster.partitions(ns, -(-WRITERS // len(names)))
    everybody, summary = [], {ACKNOWLEDGED: 0, REFUSED: 0, UNKNOWN: 0}
    for life in range(ROUNDS):
        victim = names[life % len(names)]
        writers = {name: [] for name in names}
        for at in range(WRITERS):
            name = names[at % len(names)]
            partition = partitions[name][at // len(names)]
            writer = Writer(dispatcher.client, "kill", partition, f"{life}-{at}", at % 4 == 3, TIMEOUT_MS)
            writers[name].append(writer)
            writer.start()
        others = [writer for name in names if name != victim for writer in writers[name]]
        everybody += [writer for name in names for writer in writers[name]]
        goal = 200 + 97 * life
        wait_until(lambda: total(everybody[-WRITERS:]) >= goal, "the writers write", 120)
        cluster.nodes[victim].kill()
        wait_until(
            lambda: any(writer.problems for writer in writers[victim]), "its writers are told", 30
        )
        before = total(others)
        wait_until(lambda: total(others) >= before + 100, "the others go on without it", 60)
        cluster.nodes[victim].start()
        before = total(writers[victim])
        wait_until(lambda: total(writers[victim]) >= before + 60, "it is found again by itself", 60)
        for writer in everybody[-WRITERS:]:
            writer.end()
            assert writer.cuts == 0, "the dispatcher lives"
            assert writer.slowest() < TIMEOUT_MS / 1000 + GRACE_SECONDS
        for writer in others:
            assert not writer.problems, writer.problems[:1]
        codes = {problem["type"].rpartition("/")[2] for one in writers[victim] for problem in one.problems}
        assert "shard-unavailable" in codes, codes
        for writer in writers[victim]:
            for problem in writer.problems:
                if problem["type"].endswith("/shard-unavailable"):
                    # A line of a batch has no scope.
                    assert cluster.tier.owner(problem["shard"]) == victim and problem.get("scope", "shard") == "shard"
        summary = check(Namespace(dispatcher.client(), "kill"), everybody)
        print(f"round {life}: {summary}")
    assert summary[ACKNOWLEDGED] > 300 * ROUNDS and summary[UNKNOWN] > 0
    cluster.stop()


def test_all_nodes_killed_at_once_come_back_with_everything(new_cluster):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("kill")
    partitions = [one for own in cluster.partitions(ns, 3).values() for one in own]
    writers = [Writer(dispatcher.client, "kill", one, f"w-{at}", at % 2 == 1, 1_000) for at, one in enumerate(partitions)]
    [writer.start() for writer in writers]
    wait_until(lambda: total(writers) >= 100, "the writers write")
    cluster.tier.kill()
    wait_until(lambda: all(writer.problems for writer in writers), "all of them are told")
    answer = ns.get(partitions[0])
    answer.problem(503, "shard-unavailable")
    assert dispatcher.client().get("/healthz").status == 200, "the dispatcher lives"
    cluster.tier.start()
    before = {writer: writer.acknowledged() for writer in writers}
    goes_on = lambda: all(writer.acknowledged() >= before[writer] + 5 for writer in writers)
    wait_until(goes_on, "everything goes on by itself")
    [writer.end() for writer in writers]
    check(Namespace(dispatcher.client(), "kill"), writers)
    cluster.stop()


def test_a_dispatcher_that_is_killed_takes_only_what_it_had_in_flight(new_cluster):
    cluster = new_cluster(2).start()
    gone, other = cluster.dispatchers
    ns = other.namespace("kill")
    wait_until(lambda: Namespace(gone.client(), "kill").put("seen").status in (201, 204), "both know it", 60)
    partitions = [one for own in cluster.partitions(ns, 4).values() for one in own]
    through_gone = [Writer(gone.client, "kill", one, f"g-{at}", at % 3 == 2) for at, one in enumerate(partitions)]
    through_other = [Writer(other.client, "kill", one, f"o-{at}", at % 3 == 2) for at, one in enumerate(partitions)]
    [writer.start() for writer in through_gone + through_other]
    wait_until(lambda: total(through_gone) >= 100 and total(through_other) >= 100, "the writers write")
    gone.kill()
    before = total(through_other)
    wait_until(lambda: total(through_other) >= before + 200, "the other one goes on")
    begun = time.monotonic()
    gone.start()
    print(f"serves again after {time.monotonic() - begun:.1f} s")
    before = total(through_gone)
    wait_until(lambda: total(through_gone) >= before + 100, "and so does the next one")
    [writer.end() for writer in through_gone + through_other]
    for writer in through_other:
        assert not writer.cuts and not writer.problems, (writer.cuts, writer.problems[:1])
    for writer in through_gone:
        assert writer.cuts, "it was killed"
    check(Namespace(other.client(), "kill"), through_gone + through_other)
    cluster.stop()
