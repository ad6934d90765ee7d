"""Writes of one client through one dispatcher: what is told `unknown` is never applied after what came later.

The node that has the rows stands still for a moment (SIGSTOP), or the deadline is so short that it passes on
the way: both leave a write behind that its client has given up.
"""

import random

from deadline import ROUNDING_SECONDS, Waiting, asked_of, standing_still
from harness import wait_until

ROUNDS = 40
LARGE, SMALL = b"1" * (1 << 20), b"2"
# Not the one that has Umbo's own records, which dispatchers follow.
VICTIM = "b"
TIMEOUT_MS = 60


def begin(cluster, name):
    """A namespace, and a partition of the victim for each round."""
    ns = cluster.dispatchers[0].namespace(name)
    return ns, cluster.partitions(ns, ROUNDS)[VICTIM]


def is_unknown(older):
    """Whether the outcome of a write that may have been given up is not known."""
    if older.status in (201, 204):
        return False
    problem = older.json()
    assert older.status == 504 and problem["outcome"] in ("unknown", "not-applied"), older
    return problem["outcome"] == "unknown"


def has_newer(ns, partition):
    return ns.get(partition, Cache_Control="no-cache").body == SMALL


def test_a_write_that_was_given_up_at_a_node_that_stood_still_never_follows_a_newer_one(single):
    (dispatcher,) = single.dispatchers
    node, (ns, partitions) = single.nodes[VICTIM], begin(single, "paused")
    chance, unknown, wrong = random.Random(4), 0, []
    for partition in partitions:
        # It goes on when the deadline is about to pass, or when both writes wait for it.
        is_late = chance.random() < 0.5
        with standing_still(dispatcher.clock):
            node.pause()
            try:
                older = Waiting(lambda: ns.put(partition, value=LARGE, Umbo_Timeout_Ms=str(TIMEOUT_MS)))
                wait_until(lambda: asked_of(dispatcher, VICTIM) == 1, "the node is asked")
                if not is_late:
                    node.resume()
                dispatcher.clock.advance(TIMEOUT_MS / 1_000 + ROUNDING_SECONDS)
                (given_up,) = older.answers()
                newer = Waiting(lambda: ns.put(partition, value=SMALL))
                if is_late:
                    wait_until(lambda: asked_of(dispatcher, VICTIM) == 2, "both writes wait for the node")
            finally:
                node.resume()
            assert newer.answers()[0].status in (201, 204)
        assert is_unknown(given_up) or not is_late, given_up
        unknown += is_unknown(given_up)
        if not has_newer(ns, partition):
            wrong.append(partition)
    # Nor does any come still later.
    late = [one for one in partitions if not has_newer(ns, one)]
    print(f"{unknown} of {ROUNDS} were given up with an unknown outcome")
    assert not wrong and not late, (wrong, late)


def test_a_write_that_was_given_up_on_its_way_never_follows_a_newer_one(single):
    ns, partitions = begin(single, "hurried")
    chance, unknown, wrong = random.Random(4), 0, []
    for partition in partitions:
        older = ns.put(partition, value=LARGE, Umbo_Timeout_Ms=str(chance.choice((2, 4, 8, 16))))
        newer = ns.put(partition, value=SMALL)
        assert newer.status in (201, 204), newer
        unknown += is_unknown(older)
        if not has_newer(ns, partition):
            wrong.append(partition)
    late = [one for one in partitions if not has_newer(ns, one)]
    print(f"{unknown} of {ROUNDS} were given up with an unknown outcome")
    assert not wrong and not late, (wrong, late)
