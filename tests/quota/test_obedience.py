"""Waiting as told is enough: plain clients that send the ticket of a rejection with their retry.

The time is the test's: clients ask when they were told to, to the millisecond, so that no ticket lapses because the
machine stands still.
"""

import concurrent.futures
import http.client
import random
import threading

import pytest

from harness import WAIT_SECONDS
from quotas import (
    QUANTUM_MS,
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
# Of a quota, in requests a second and as its burst.
RATE = 100
# Of the retries that came as told, those that may be rejected once more.
IN_VAIN = 0.05
# Time that passes at once where others go on.
STEP_MS = 50


class Plain:
    """A keep-alive connection that sends its credential and nothing else of ours."""

    def __init__(self, port, token, path):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        self.headers, self.path = {"Authorization": f"Bearer {token}"}, path
        self.successes = self.rejections = self.asked_again = self.came_in_vain = 0
        self.ticket = {}
        # Whether it was rejected when it last asked, and when it asks next.
        self.is_again, self.due_ms = False, 0

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

    def obey(self, now_ms, wait_of):
        """Asks; after a rejection it waits as told."""
        refusal = self.ask()
        if refusal is not None:
            self.came_in_vain += self.is_again
            self.asked_again += not self.is_again
            self.due_ms = now_ms + wait_of(refusal)
        self.is_again = refusal is not None


def exact_ms(answer):
    return int(answer.headers["umbo-retry-after-ms"])


def whole_seconds_ms(answer):
    return int(answer.headers["retry-after"]) * 1000


def served(clock, crowd, successes, wait_of, threads=1, meanwhile=lambda: None):
    """Lets each of a crowd ask until it was served so many times; returns the seconds that this took.

    Time stands still while those ask who have waited as told; then the clock moves to when the next one has.
    `meanwhile` is done between.
    """
    now_ms, waiting = 0, list(crowd)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        while waiting:
            next_ms = min(plain.due_ms for plain in waiting)
            assert next_ms < 1_000 * WAIT_SECONDS, [plain.successes for plain in crowd]
            # What goes on meanwhile goes on in small steps.
            while now_ms < next_ms:
                step_ms = min(STEP_MS, next_ms - now_ms)
                clock.advance(step_ms / 1_000)
                now_ms += step_ms
                meanwhile()
            due = [plain for plain in waiting if plain.due_ms <= now_ms]
            list(pool.map(lambda plain: plain.obey(now_ms, wait_of), due))
            waiting = [plain for plain in waiting if plain.successes < successes]
            for plain in set(crowd).difference(waiting):
                plain.connection.close()
    return now_ms / 1_000


def crowd_of(closed, count, kind=Plain):
    """So many clients of one caller, with a quota of a hundred a second."""
    closed.namespace("crowd")
    put_policy(closed.root, policy("crowd", RATE, per=["caller"], match={"caller": "crowd"}))
    token = make_token(closed.root, "crowd", "read:*")
    return [kind(closed.server.port, token, f"/v1/ns/crowd/kv/{number}") for number in range(count)]


def sums(crowd):
    fields = ("successes", "rejections", "asked_again", "came_in_vain")
    return [sum(getattr(plain, field) for plain in crowd) for field in fields]


def test_a_crowd_that_waits_as_told_is_served_when_it_comes_back(closed):
    """Four times as many as the quota serves: they are told the truth, and get no more than the quota."""
    crowd = crowd_of(closed, CLIENTS)
    elapsed = served(closed.server.clock, crowd, 8, exact_ms)
    successes, rejections, asked_again, in_vain = sums(crowd)
    assert in_vain == 0, (rejections, in_vain, asked_again)
    # A hundred are there at once and a hundred a second come in, of which hardly any is wasted. What comes in comes by
    # refills, the first of which may be due at once; and the last request is let in by a part of one.
    assert RATE + RATE * (elapsed - 0.1) <= successes <= RATE + RATE * (elapsed + QUANTUM_MS / 1_000) + 1, (successes, elapsed)


def test_whole_seconds_are_enough_too(closed):
    """The field that every HTTP client knows is rounded up: many come late and all at once, so that
    what was kept for some of them has lapsed. All are served, and few are asked to wait a third time."""
    crowd = crowd_of(closed, CLIENTS)
    served(closed.server.clock, crowd, 8, whole_seconds_ms)
    successes, rejections, asked_again, in_vain = sums(crowd)
    assert in_vain <= IN_VAIN * asked_again, (rejections, in_vain, asked_again)
    assert rejections <= successes, (rejections, successes)


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
    kind.idle = []
    crowd = crowd_of(closed, CLIENTS, kind)
    served(closed.server.clock, crowd, 6, exact_ms, threads=CLIENTS)
    successes, rejections, asked_again, in_vain = sums(crowd)
    assert successes == 6 * CLIENTS
    # Of those who ask at the same moment one may see what another has taken in part.
    assert in_vain <= IN_VAIN * asked_again, (rejections, in_vain, asked_again)


def test_those_who_do_not_wait_gain_nothing(closed):
    """Some hammer the same bucket without tickets: those who wait as told, some seconds each time, are served all the
    same."""
    clock = closed.server.clock
    hammering, crowd, (newcomer,) = (crowd_of(closed, count) for count in (3, 16, 1))

    def hammer():
        """As much as six times the quota."""

        def ask(number):
            for _ in range(10):
                hammering[number].ticket = {}
                hammering[number].ask()

        in_threads(len(hammering), ask)

    def told():
        newcomer.ticket = {}
        refusal = newcomer.ask()
        return refusal and exact_ms(refusal)

    # At first all of them may come back; who asks then is told to wait for as long as that would take.
    steps, told_ms = 0, None
    while not told_ms or told_ms >= 2_000 or sums(hammering)[1] <= 1_000:
        clock.advance(STEP_MS / 1_000)
        hammer()
        steps, told_ms = steps + 1, told()
        assert steps < 200, "for those who do not come nothing is kept in the end"
    served(clock, crowd, 3, exact_ms, meanwhile=hammer)
    assert sum(plain.rejections for plain in crowd) > 0


def test_a_ticket_that_is_no_good_is_no_ticket(server, ns):
    """Used, changed, of another caller or malformed: the request is a new one, and answered as such."""
    limited(server, ns, rate=20, burst=20)
    _, refusal = until_rejected(lambda: ns.get("a"), 60)
    ticket = refusal.headers["umbo-retry-ticket"]
    rest(server, wait_ms(refusal))
    assert not rejected(ns.get("a", Umbo_Retry_Ticket=ticket))
    changed = ("B" if ticket[0] == "A" else "A") + ticket[1:]
    for bad in (ticket, changed, ticket[:-1], ticket * 2, "A" * len(ticket), "x", "é".encode().decode("latin-1")):
        served, refusal = until_rejected(lambda: ns.get("a", Umbo_Retry_Ticket=bad), 60)
        assert refusal.headers["umbo-retry-ticket"] != bad
