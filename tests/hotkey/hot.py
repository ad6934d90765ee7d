"""What the tests of hot keys share: listing keys, heating them, and reading what answers say.

Owns no opinion about when a key is hot: what is kept is read from `Cache-Status`, everything else
from the admin API and metrics.
"""

import json
import re

from harness import b64u, quote, wait_until

HOT = "/admin/v1/hot"
HIT_PRICE = "0.1"
# A rate that single requests of a test never reach, and a time to live so long that a machine that stands still for a
# moment spoils nothing.
TTL_SECONDS = 10
# How often the detector looks, and reads that are beyond doubt four times the least rate in that time.
LOOK_SECONDS = 0.1
READS = 40
WARM = {"hotkey": {"rate_min": 50, "ttl": f"{TTL_SECONDS}s"}}

STATUS = re.compile(
    r"umbo; (?:hit; ttl=(?P<ttl>\d{1,5})|fwd=(?P<fwd>miss|request)(?P<shared>; collapsed)?)"
)


def came_by(answer):
    """How an answer came by: `hit`, `miss`, `collapsed` or `request`; checks its fields."""
    status = answer.headers.get("cache-status")
    assert status is not None, answer
    found = STATUS.fullmatch(status)
    assert found, answer
    assert ("age" in answer.headers) == (found["ttl"] is not None), answer
    if found["ttl"] is not None:
        return "hit"
    return "collapsed" if found["shared"] else found["fwd"]


def is_hit(answer):
    return came_by(answer) == "hit"


def key_path(ns, partition, sort=None):
    """A key as the lists name it: by the path of the data plane."""
    return ns.path(partition, sort).removeprefix("/v1/")


def listed(client, which, key, **spec):
    """Puts a key on a list; returns what the server says of it."""
    answer = client.put(f"{HOT}/{which}/{key}", json.dumps(spec))
    assert answer.status in (200, 201), answer
    return answer.json()


def pin(ns, partition, sort=None, **spec):
    return listed(ns.client, "pinned", key_path(ns, partition, sort), **spec)


def block(ns, partition, sort=None, **spec):
    return listed(ns.client, "blocked", key_path(ns, partition, sort), **spec)


def unblock(ns, partition, sort=None):
    answer = ns.client.delete(f"{HOT}/blocked/{key_path(ns, partition, sort)}")
    assert answer.status == 204, answer


def blocked(answer):
    """Checks that a request was refused because of a block, and for nothing."""
    problem = answer.problem(429, "abnormal-usage-detected")
    assert answer.headers["umbo-ru"] == "0", answer
    assert problem["scope"] == "partition", answer
    return problem


def report(client):
    answer = client.get(HOT)
    assert answer.status == 200, answer
    return answer.json()


def keys_of(client, ns):
    """The keys of a namespace in the report."""
    return [key for key in report(client)["keys"] if key["namespace"] == ns.name]


def kept(ns, partition, sort=None, value=b"v", **headers):
    """Writes and pins a row, and reads it until it is served from the cache."""
    assert ns.put(partition, sort, value, **headers).status in (201, 204)
    pin(ns, partition, sort)
    return warmed(lambda: ns.get(partition, sort))


def warmed(ask):
    """Asks until an answer comes from the cache, and returns it."""
    return wait_until(lambda: (answer := ask()) and is_hit(answer) and answer, "it is kept")


def pinned_range(server, ns, partition, **query):
    """Heats the first page of a range until it is known, and pins it by its id."""
    key = heated(server, ns, lambda: ns.range(partition, **query))
    assert key["kind"] == "range", key
    return listed(ns.client, "pinned", f"id/{key['id']}")


def heated(server, ns, ask):
    """Makes the key that is asked for hot, on a server whose clock stands still; returns what the report says of it.

    The reads are many for the moment that passes by that clock, however long they take.
    """

    def heat():
        read(ask, server)
        return next((key for key in keys_of(ns.client, ns) if key["is_hot"]), None)

    return wait_until(heat, "it is hot")


def read(ask, server):
    """Reads as often as it takes to heat a key in the time between two looks of the detector, and lets that pass."""
    for _ in range(READS):
        ask()
    server.clock.advance(LOOK_SECONDS)


def make_token(client, name, *grants):
    answer = client.post("/admin/v1/tokens", {"name": name, "grants": list(grants)})
    assert answer.status == 201, answer
    return answer.json()["token"]


def row_path(ns, partition, sort, encoding="percent"):
    """The path of a row after its list, in either encoding."""
    if encoding == "percent":
        return f"ns/{ns.name}/kv/{quote(partition)}/{quote(sort)}"
    return f"ns/{ns.name}/kv/{b64u(partition)}/{b64u(sort)}?enc=b64u"
