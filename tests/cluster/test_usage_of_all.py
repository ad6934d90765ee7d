"""Usage of a fleet: any dispatcher shows all of it, also what dispatchers have counted that are gone."""

import signal

from bulk import step_until
from clock import Clock
from harness import Namespace, wait_until

# Longer than a report goes back by itself.
AWAY_SECONDS = 8 * 86_400


def puts(dispatcher):
    """Puts through all dispatchers together, as one of them shows them."""
    answer = dispatcher.admin().get("/admin/v1/usage?by=operation&namespace=shared")
    assert answer.status == 200, answer
    return sum(row["requests"] for row in answer.json()["rows"] if row["operation"] == "put")


def put(dispatcher, count):
    ns = Namespace(dispatcher.client(), "shared")
    for number in range(count):
        assert ns.put(f"p{number}", value=b"v").status in (201, 204)


def until_shown(cluster, dispatcher, expected):
    """Lets time pass until a dispatcher shows so many puts: the others write theirs each minute."""
    step_until(cluster.tier.clock, lambda: puts(dispatcher) == expected, f"{expected} puts are shown", step=5)


def test_any_dispatcher_shows_the_usage_of_all_and_of_those_that_are_gone(new_cluster):
    cluster = new_cluster(2).start()
    first, second = cluster.dispatchers
    first.namespace("shared")
    wait_until(lambda: second.client().get("/v1/ns/shared/kv/a").status == 404, "the namespace is seen")
    put(first, 5)
    put(second, 3)
    until_shown(cluster, second, 8)
    until_shown(cluster, first, 8)
    put(first, 4)
    first.stop()
    assert puts(second) == 12, "a stop writes what is not written yet"
    first.start()
    put(first, 2)
    until_shown(cluster, second, 14)
    first.kill()
    assert puts(second) == 14, "what is written outlives a kill"
    first.start()
    assert puts(first) == 14
    put(first, 1)
    until_shown(cluster, second, 15)
    cluster.stop()


def test_usage_that_the_home_took_while_its_clock_was_behind_is_kept(new_cluster):
    cluster = new_cluster()
    home, (dispatcher,) = cluster.nodes[cluster.tier.owner(0)], cluster.dispatchers
    home.clock = Clock()
    home.clock.jump(-AWAY_SECONDS)
    cluster.start()
    dispatcher.namespace("shared")
    put(dispatcher, 5)
    dispatcher.stop()
    home.clock.jump(AWAY_SECONDS)
    dispatcher.start()
    assert puts(dispatcher) == 5
    cluster.stop()


def test_usage_of_a_clock_that_was_ahead_is_in_no_report_before_its_time(new_cluster):
    cluster = new_cluster()
    (dispatcher,) = cluster.dispatchers
    clocks = {cluster.tier.clock, dispatcher.clock}
    for clock in clocks:
        clock.jump(AWAY_SECONDS)
    cluster.start()
    dispatcher.namespace("shared")
    put(dispatcher, 5)
    dispatcher.stop()
    for clock in clocks:
        clock.jump(-AWAY_SECONDS)
    dispatcher.start()
    assert puts(dispatcher) == 0
    put(dispatcher, 2)
    until_shown(cluster, dispatcher, 2)
    cluster.stop()


def test_a_stop_writes_the_usage_once_a_home_that_restarts_is_back(new_cluster):
    cluster = new_cluster().start()
    home, (dispatcher,) = cluster.nodes[cluster.tier.owner(0)], cluster.dispatchers
    dispatcher.namespace("shared")
    put(dispatcher, 5)
    home.kill()
    dispatcher.process.send_signal(signal.SIGTERM)
    home.start()
    dispatcher.wait_for_good_end()
    dispatcher.start()
    assert puts(dispatcher) == 5
    cluster.stop()
