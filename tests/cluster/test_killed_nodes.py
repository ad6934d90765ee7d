"""kill -9 of a shard node in the middle of writes: nothing acknowledged is lost, what is unknown is said to
be, and the rows of other nodes never notice.

Three rounds by default; `UMBO_TESTS_ROUNDS=20` for more.
"""

import os

from deadline import GRACE_SECONDS, answers_at_deadline, asked_of, standing_still
from harness import Namespace, wait_until
from writers import ACKNOWLEDGED, PATIENT_MS, REFUSED, UNKNOWN, Writer, check, total

ROUNDS = int(os.environ.get("UMBO_TESTS_ROUNDS", "3"))
WRITERS = 48
TIMEOUT_MS = 2_000
# How much earlier than its deadline a request is told at most that its node is away.
TELLING_MS = 50


def test_a_request_to_a_killed_node_is_answered_before_its_deadline(new_cluster):
    """While the node is expected back; it would be for longer than the request may take."""
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    own = cluster.partitions(dispatcher.namespace("late"), 1)["b"][0]
    new = lambda: Namespace(dispatcher.client(), "late")
    headers = {"Umbo-Timeout-Ms": str(TIMEOUT_MS), "Cache-Control": "no-cache"}
    with standing_still(dispatcher.clock):
        wait_until(lambda: dispatcher.in_flight() == 0, "nobody asks")
        cluster.nodes["b"].kill()
        wait_until(lambda: dispatcher.metric("umbo_remote_connections_lost_total") == 1, "it is seen to be gone")
        asks = [lambda ask=ask: ask(own, **headers) for ask in (new().get, new().put)]
        read, written = answers_at_deadline(dispatcher, TIMEOUT_MS, *asks, telling_ms=TELLING_MS)
    read.problem(503, "shard-unavailable")
    assert written.problem(503, "shard-unavailable")["outcome"] == "not-applied"
    cluster.nodes["b"].start()
    cluster.stop()


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
            timeout_ms = TIMEOUT_MS if name == victim else PATIENT_MS
            writer = Writer(dispatcher.client, "kill", partition, f"{life}-{at}", at % 4 == 3, timeout_ms)
            writers[name].append(writer)
            writer.start()
        others = [writer for name in names if name != victim for writer in writers[name]]
        everybody += [writer for name in names for writer in writers[name]]
        goal = 200 + 97 * life
        wait_until(lambda: total(everybody[-WRITERS:]) >= goal, "the writers write", 120)
        if life == 0:
            # Once for certain while writes are on their way.
            cluster.nodes[victim].pause()
            wait_until(lambda: asked_of(dispatcher, victim) > 0, "it is asked")
        cluster.nodes[victim].kill()
        wait_until(lambda: any(writer.problems for writer in writers[victim]), "its writers are told")
        before = total(others)
        wait_until(lambda: total(others) >= before + 100, "the others go on without it")
        cluster.nodes[victim].start()
        before = total(writers[victim])
        wait_until(lambda: total(writers[victim]) >= before + 60, "it is found again by itself")
        for writer in everybody[-WRITERS:]:
            writer.end()
            assert writer.cuts == 0, "the dispatcher lives"
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
    new = lambda at, one: Writer(dispatcher.client, "kill", one, f"w-{at}", at % 2 == 1, 1_000)
    writers = [new(at, one) for at, one in enumerate(partitions)]
    [writer.start() for writer in writers]
    wait_until(lambda: total(writers) >= 100, "the writers write")
    cluster.tier.kill()
    wait_until(lambda: all(writer.problems for writer in writers), "all of them are told")
    dispatcher.clock.advance(GRACE_SECONDS)
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
    wait_until(lambda: Namespace(gone.client(), "kill").put("seen").status in (201, 204), "both know it")
    partitions = [one for own in cluster.partitions(ns, 4).values() for one in own]
    through_gone, through_other = (
        [Writer(one.client, "kill", own, f"{kind}-{at}", at % 3 == 2, PATIENT_MS) for at, own in enumerate(partitions)]
        for kind, one in (("gone", gone), ("other", other))
    )
    [writer.start() for writer in through_gone + through_other]
    wait_until(lambda: total(through_gone) >= 100 and total(through_other) >= 100, "the writers write")
    gone.kill()
    before = total(through_other)
    wait_until(lambda: total(through_other) >= before + 200, "the other one goes on")
    gone.start()
    before = total(through_gone)
    wait_until(lambda: total(through_gone) >= before + 100, "and so does the next one")
    [writer.end() for writer in through_gone + through_other]
    for writer in through_other:
        assert not writer.cuts and not writer.problems, (writer.cuts, writer.problems[:1])
    for writer in through_gone:
        assert writer.cuts, "it was killed"
    check(Namespace(other.client(), "kill"), through_gone + through_other)
    cluster.stop()
