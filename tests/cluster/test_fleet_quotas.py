"""A quota of the scope `fleet` counts once, however many dispatchers there are."""

import contextlib
import json
import re
import sys
import threading

import pytest

from processes import PROJECT, wait_until
from test_fleet import PRESENCE_SECONDS, fleet_of

sys.path.insert(0, str(PROJECT / "tests/quota"))
from quotas import check_rejection  # noqa: E402

RATE, BURST = 100, 100
# How long a test asks for more than the quota, in seconds of the clock of the processes.
LOADED = 6


def limited(dispatchers, name="of-all", **more):
    """Stores a policy of the scope `fleet` and waits until every dispatcher has it."""
    policy = {"name": name, "unit": "requests", "rate": RATE, "burst": BURST, "scope": "fleet"} | more
    policy["match"] = {"namespace": "shared"}
    dispatchers[0].namespace("shared")
    answer = dispatchers[0].client().put(f"/admin/v1/quotas/{name}", json.dumps(policy))
    assert answer.status == 201, answer
    for dispatcher in dispatchers:
        wait_until(lambda: has_policy(dispatcher, name), "the policy is known")  # noqa: B023


def has_policy(dispatcher, name):
    return dispatcher.client().get(f"/admin/v1/quotas/{name}").status == 200


def is_joined(dispatcher, owners):
    """Whether a dispatcher knows a row with so many owners at least: one joins with each revision."""
    return dispatcher.metric("umbo_fleet_quota_revision") >= owners


def started(new_cluster, count, settings=None, **more):
    """A cluster whose dispatchers all own counters."""
    cluster = new_cluster(count, settings, **more).start()
    fleet_of(cluster.dispatchers[0], count)
    limited(cluster.dispatchers)
    for dispatcher in cluster.dispatchers:
        wait_until(lambda: is_joined(dispatcher, count), "all own counters")  # noqa: B023
    return cluster


class Load:
    """Requests in a closed loop to some dispatchers, counted."""

    def __init__(self, dispatchers, key="a", **headers):
        self.path, self.headers = f"/v1/ns/shared/kv/{key}", headers
        self.clock = dispatchers[0].clock
        self.admitted, self.refused, self.failures = [], [], []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=[one]) for one in dispatchers]

    def ask(self, dispatcher):
        client = dispatcher.client()
        while not self.is_over.is_set():
            try:
                answer = client.get(self.path, **self.headers)
            except OSError:
                # It was killed or stopped.
                return
            at = self.clock.monotonic()
            if answer.status == 404:
                self.admitted.append(at)
            elif answer.status == 429:
                self.refused.append(answer)
            elif answer.status != 503:
                self.failures.append(answer)

    @contextlib.contextmanager
    def running(self):
        self.began = self.clock.monotonic()
        for thread in self.threads:
            thread.start()
        try:
            yield self
        finally:
            self.is_over.set()
            for thread in self.threads:
                thread.join()
            self.ended = self.clock.monotonic()
        assert not self.failures, self.failures[:3]

    def wait(self, seconds):
        """Waits until a time after the begin."""
        wait_until(lambda: self.clock.monotonic() > self.began + seconds, "it is time")

    def run(self, seconds=LOADED):
        with self.running():
            self.wait(seconds)
        return self

    def used(self, since=0):
        """The part of the quota that was admitted. From a later time on the burst does not count: a rest of it may be
        spent then, too."""
        admitted = sum(at >= self.began + since for at in self.admitted)
        return admitted / (RATE * (self.ended - self.began - since) + (0 if since else BURST))


@pytest.mark.parametrize("count", [2, 4])
def test_all_dispatchers_together_admit_the_quota(new_cluster, count):
    cluster = started(new_cluster, count)
    load = Load(cluster.dispatchers).run()
    assert 0.9 <= load.used() <= 1.1, load.used()
    refused = load.refused[-1]
    check_rejection(refused, "of-all", unit="requests", rate=RATE, burst=BURST, scope="fleet")
    users = [one.client().get("/admin/v1/quotas/of-all/users").json()["users"] for one in cluster.dispatchers]
    assert all(one["limit"] == {"rate": RATE, "burst": BURST, "unit": "requests"} for (one,) in users), users
    # Each shows the balance of the fleet, at slightly different times.
    balances = [one["balance"] for (one,) in users]
    assert max(balances) - min(balances) <= BURST / 3, users
    cluster.stop()


def test_a_caller_of_one_dispatcher_of_four_has_nearly_the_whole_quota(new_cluster):
    cluster = started(new_cluster, 4)
    load = Load(cluster.dispatchers[:1]).run()
    assert 0.9 <= load.used() <= 1.1, load.used()
    # As another one, a moment later: the share follows.
    other = Load(cluster.dispatchers[1:2]).run()
    assert other.used(1) >= 0.85 and other.used() <= 1.1, (other.used(1), other.used())
    cluster.stop()


def owners(dispatcher):
    """How many live dispatchers own counters, as one of them lists the fleet."""
    listed = dispatcher.admin().get("/admin/v1/fleet").json()["processes"]
    return sum(one.get("owns_quotas", False) for one in listed if one["state"] == "live")


def owner(dispatchers):
    """The dispatcher that owns the counter."""
    return wait_until(
        lambda: next((one for one in dispatchers if one.metric("umbo_fleet_quota_owned_counters")), None),
        "the counter has an owner",
    )


def test_the_owner_is_killed_and_no_burst_is_granted(new_cluster):
    cluster = started(new_cluster, 4)
    load = Load(cluster.dispatchers)
    with load.running():
        load.wait(2)
        killed = owner(cluster.dispatchers)
        killed.kill()
        killed_at = load.clock.monotonic() - load.began
        load.wait(killed_at + LOADED)
    assert load.used(killed_at) >= 0.85 and load.used() <= 1.1, (load.used(killed_at), load.used())
    others = [one for one in cluster.dispatchers if one is not killed]
    # Each knows the row without it, and that without a restart.
    for one in others:
        wait_until(lambda: one.metric("umbo_fleet_quota_silent_owners") == 0, "no owner is silent")  # noqa: B023
        assert one.metric("umbo_fleet_quota_revision") >= 5
        assert one.log_text().count("owns quotas and is silent") <= 1
        one.stop()
    cluster.tier.stop()


def test_a_dispatcher_that_restarts_in_order_moves_no_limit(new_cluster):
    cluster = started(new_cluster, 2)
    first, second = cluster.dispatchers
    load = Load([first])
    with load.running():
        load.wait(2)
        second.stop()
        wait_until(lambda: first.metric("umbo_fleet_quota_revision") >= 3, "it has given up its counters")
        second.start()
        wait_until(lambda: first.metric("umbo_fleet_quota_revision") >= 4, "it owns counters again")
        wait_until(lambda: owners(first) == 2, "both are listed as owners")
        load.wait(LOADED)
    assert 0.85 <= load.used() <= 1.1, load.used()
    assert "owns quotas and is silent" not in first.log_text()
    cluster.stop()


def test_an_owner_that_stands_still_grants_no_burst_when_it_goes_on(new_cluster):
    cluster = started(new_cluster, 3)
    load = Load(cluster.dispatchers)
    with load.running():
        load.wait(2)
        paused = owner(cluster.dispatchers)
        paused.pause()
        others = [one for one in cluster.dispatchers if one is not paused]
        wait_until(lambda: owner(others), "another one has taken the counter over")
        load.wait(LOADED)
        paused.resume()
        wait_until(lambda: paused.metric("umbo_fleet_quota_revision") >= 4, "it knows the new owners")
        load.wait(LOADED + 3)
    assert 0.85 <= load.used() <= 1.1, load.used()
    wait_until(lambda: owners(paused) == 3, "it owns counters again")
    cluster.stop()


def test_while_the_home_is_away_the_quota_is_shared_as_before(new_cluster):
    cluster = started(new_cluster, 2)
    first, _ = cluster.dispatchers
    home = cluster.nodes[cluster.tier.owner(0)]
    home.kill()
    status = lambda key: first.client().get(f"/v1/ns/shared/kv/{key}").status  # noqa: E731
    # A key of a node that is there.
    key = wait_until(lambda: next((key for key in "abcdefghijkl" if status(key) == 404), None), "a node answers")
    load = Load(cluster.dispatchers, key).run()
    assert load.used(1) >= 0.8 and load.used() <= 1.1, (load.used(1), load.used())
    home.start()
    cluster.stop()


def test_messages_pass_over_tls(new_cluster, authority):
    cluster = started(new_cluster, 2, authority.settings("dispatcher"), node_settings=authority.settings("node"))
    load = Load(cluster.dispatchers).run(4)
    assert 0.85 <= load.used() <= 1.15, load.used()
    answered = [messages(one, "answered") for one in cluster.dispatchers]
    # One of them owns the counter, and the other asks it.
    assert max(answered) >= 10 and sum(messages(one, "unanswered") for one in cluster.dispatchers) <= 5, answered
    cluster.stop()


def messages(dispatcher, outcome):
    text = dispatcher.admin().get("/metrics").body.decode()
    (found,) = re.findall(rf'^umbo_fleet_quota_messages_total{{outcome="{outcome}"}} (\d+)$', text, re.M)
    return int(found)


def test_without_such_a_policy_nothing_is_sent_and_no_row_is_written(pair):
    first, second = pair.dispatchers
    fleet_of(first, 2)
    first.clock.advance(PRESENCE_SECONDS)
    fleet_of(second, 2)
    for dispatcher in pair.dispatchers:
        assert dispatcher.metric("umbo_fleet_quota_messages_total") == 0
        assert dispatcher.metric("umbo_fleet_quota_revision") == 0


def test_a_server_with_its_store_in_its_process_counts_alone(new_server):
    server = new_server().start()
    limited([server])
    load = Load([server]).run(3)
    assert 0.9 <= load.used() <= 1.1, load.used()
    assert "umbo_fleet_quota" not in server.admin().get("/metrics").body.decode()
