"""Waiting as told is enough: plain clients that send the ticket of a rejection with their retry.

Here it is shown over sockets that tickets are honoured. How nearly all of them are is held in simulated time
(`crates/umbo-quota/tests/limiter/waiting.rs`) and on a quiet machine (`umbo-loadtest check quota`): where the machine
stands still for longer than a reservation lasts, tickets lapse.
"""

import http.client
import random
import threading
import time

import pytest

from harness import WAIT_SECONDS, wait_until
from quotas import (
    in_threads,
    limited,
    make_token,
    policy,
    put_policy,
    rejected,
    rest,
    until_rejected,
    wait_ms,
)

CLIENTS = 64
# Of the retries that came as told, those that may be rejected once more on a machine that is busy with something else.
IN_VAIN = 0.5


class Plain:
    """A keep-alive connection that sends its credential and nothing else of ours."""

    def __init__(self, port, token, path):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        self.headers, self.path = {"Authorization": f"Bearer {token}"}, path
        self.successes = self.rejections = self.asked_again = self.came_in_vain = 0
        self.ticket = {}

    def ask(self):
        self.connection.request("GET", self.path, headers=self.headers | self.ticket)
        answer = self.connection.getresponse()
        answer.read()
        assert answer.status in (200, 404, 429), answer.status
        ticket = answer.headers["umbo-retry-ticket"]
        assert (ticket is not None) == (answer.status == 429), answer.headers
        self.ticket = {"Umbo-Retry-Ticket": ticket} if ticket else {}
        if answer.status != 429:
            self.successes += 1
            return None
        self.rejections += 1
        return answer

    def obey(self, successes, wait_of, stop):
        """Asks until it was served so many times; waits as told after each rejection."""
        while self.successes < successes and time.monotonic() < stop:
            is_again = False
            while (refusal := self.ask()) is not None and time.monotonic() < stop:
                self.came_in_vain += is_again
                self.asked_again += not is_again
                is_again = True
                rest(wait_of(refusal))
        self.connection.close()


def exact_ms(answer):
    return int(answer.headers["umbo-retry-after-ms"])


def whole_seconds_ms(answer):
    return int(answer.headers["retry-after"]) * 1000


def obedient(closed, clients, successes, wait_of):
    """All of them at once on one caller's quota."""
    token = make_token(closed.root, "crowd", "read:*")
    path = "/v1/ns/crowd/kv/a"
    crowd = [Plain(closed.server.port, token, path) for _ in range(clients)]
    stop = time.monotonic() + WAIT_SECONDS
    in_threads(clients, lambda number: crowd[number].obey(successes, wait_of, stop))
    assert all(plain.successes == successes for plain in crowd), [p.successes for p in crowd]
    return crowd


def sums(crowd):
    fields = ("successes", "rejections", "asked_again", "came_in_vain")
    return [sum(getattr(plain, field) for plain in crowd) for field in fields]


def test_a_crowd_that_waits_as_told_is_served_when_it_comes_back(closed):
    """Four times as many as the quota serves: they are told the truth, and get no more than the quota."""
    closed.namespace("crowd")
    put_policy(closed.root, policy("crowd", 100, per=["caller"], match={"caller": "crowd"}))
    begun = time.monotonic()
    successes, rejections, asked_again, in_vain = sums(obedient(closed, CLIENTS, 8, exact_ms))
    elapsed = time.monotonic() - begun
    assert in_vain <= IN_VAIN * asked_again, (rejections, in_vain, asked_again)
    # 100 are there at once and 100 a second come in.
    assert successes <= 100 + 105 * elapsed + 1


def test_whole_seconds_are_enough_too(closed):
    """The field that every HTTP client knows is rounded up: many come late and all at once, so that
    what was kept for some of them has lapsed. All are served, and few are asked to wait a third time."""
    closed.namespace("crowd")
    put_policy(closed.root, policy("crowd", 100, per=["caller"], match={"caller": "crowd"}))
    successes, rejections, asked_again, in_vain = sums(obedient(closed, CLIENTS, 8, whole_seconds_ms))
    assert in_vain <= asked_again, (rejections, in_vain, asked_again)
    assert rejections <= 2 * successes, (rejections, successes)


class Pooled(Plain):
    """Many clients over a pool of connections: each attempt goes out by any that is idle."""

    idle, lock = [], threading.Lock()

    def ask(self):
        with self.lock:
            if self.idle:
                self.connection = self.idle.pop(random.randrange(len(self.idle)))
            else:
                self.connection = Plain(self.connection.port, "", "").connection
        try:
            return super().ask()
        finally:
            with self.lock:
                self.idle.append(self.connection)


class Brief(Plain):
    """A new connection for each attempt."""

    def ask(self):
        self.connection.close()
        return super().ask()


@pytest.mark.parametrize("kind", [Pooled, Brief])
def test_a_ticket_is_good_by_any_connection(closed, kind):
    closed.namespace("crowd")
    put_policy(closed.root, policy("crowd", 100, per=["caller"], match={"caller": "crowd"}))
    token = make_token(closed.root, "crowd", "read:*")
    path = "/v1/ns/crowd/kv/"
    crowd = [kind(closed.server.port, token, f"{path}{number}") for number in range(CLIENTS)]
    kind.idle = []
    stop = time.monotonic() + WAIT_SECONDS
    in_threads(CLIENTS, lambda number: crowd[number].obey(6, exact_ms, stop))
    successes, rejections, asked_again, in_vain = sums(crowd)
    assert successes == 6 * CLIENTS
    assert in_vain <= IN_VAIN * asked_again, (rejections, in_vain, asked_again)


def test_those_who_do_not_wait_gain_nothing(closed):
    """Some hammer the same bucket without tickets: who waits as told, some seconds each time, is served all the same."""
    closed.namespace("crowd")
    put_policy(closed.root, policy("crowd", 100, per=["caller"], match={"caller": "crowd"}))
    token = make_token(closed.root, "crowd", "read:*")
    done = threading.Event()
    hammering = [Plain(closed.server.port, token, "/v1/ns/crowd/kv/a") for _ in range(3)]

    def hammer(plain):
        while not done.is_set():
            plain.ticket = {}
            plain.ask()
        plain.connection.close()

    def newcomer():
        refusal = Plain(closed.server.port, token, "/v1/ns/crowd/kv/a").ask()
        return refusal and exact_ms(refusal)

    threads = [threading.Thread(target=hammer, args=(plain,)) for plain in hammering]
    for thread in threads:
        thread.start()
    try:
        # At first all of them may come back; who asks then is told to wait for as long as that would take.
        wait_until(lambda: sum(plain.rejections for plain in hammering) > 1_000, "they hammer")
        wait_until(lambda: (told := newcomer()) and told < 2_000, "nothing is kept for those who do not come")
        # How soon depends on what the hammering costs; that all of them are served does not.
        crowd = obedient(closed, 16, 3, exact_ms)
    finally:
        done.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)
    assert sum(plain.rejections for plain in crowd) > 0


def test_a_ticket_that_is_no_good_is_no_ticket(server, ns):
    """Used, changed, of another caller or malformed: the request is a new one, and answered as such."""
    limited(server, ns, rate=20, burst=20)
    _, refusal = until_rejected(lambda: ns.get("a"), 60)
    ticket = refusal.headers["umbo-retry-ticket"]
    rest(wait_ms(refusal))
    assert not rejected(ns.get("a", Umbo_Retry_Ticket=ticket))
    changed = ("B" if ticket[0] == "A" else "A") + ticket[1:]
    for bad in (ticket, changed, ticket[:-1], ticket * 2, "A" * len(ticket), "x", "é".encode().decode("latin-1")):
        served, refusal = until_rejected(lambda: ns.get("a", Umbo_Retry_Ticket=bad), 60)
        assert refusal.headers["umbo-retry-ticket"] != bad
