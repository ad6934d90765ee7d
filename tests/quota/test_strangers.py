"""More names than there is room for: memory stays bounded, and nobody's balance is forgotten."""

import itertools
import re
import socket

from harness import WAIT_SECONDS, Namespace
from quotas import policy, put_policy, rejected, rest, started, until_rejected, usage, wait_ms

STRANGERS = 16_000
ROOM = 512
AT_ONCE = 250
# Less than one kilobyte and a half for each of them: about half of it are the records of refused requests, which grow
# to 64 MiB and no further.
GROWTH_BYTES_MAX = 48 << 20


def flood(server, name, count):
    """Sends a get for each of so many names, many at a time on one connection; counts statuses. Time passes as it goes
    on."""
    numbers, statuses = iter(range(count)), {}
    with socket.create_connection(("127.0.0.1", server.port), WAIT_SECONDS) as sock:
        reader = sock.makefile("rb")
        while batch := list(itertools.islice(numbers, AT_ONCE)):
            heads = (
                f"HEAD /v1/ns/{name}/kv/a HTTP/1.1\r\nHost: a\r\nUmbo-Quota-User: stranger-{n}\r\n"
                f"Umbo-User: user-{n}\r\n\r\n"
                for n in batch
            )
            server.clock.advance(0.1)
            sock.sendall("".join(heads).encode())
            for _ in batch:
                status = int(reader.readline().split()[1])
                statuses[status] = statuses.get(status, 0) + 1
                while reader.readline() != b"\r\n":
                    pass
    return statuses


def test_memory_is_bounded_and_no_balance_is_forgotten(new_server):
    server = started(new_server({"quota": {"accounts_max": ROOM, "buckets_max": ROOM}}))
    ns = server.namespace()
    put_policy(ns.client, policy("each", only=5, per=["caller"]))
    put_policy(ns.client, policy("users", burst=1_000_000, per=["user"], rate=1_000_000))
    put_policy(ns.client, policy("seen", only=5, per=["caller", "user"], mode="shadow"))
    spent, half = {"Umbo-Quota-User": "spent"}, {"Umbo-Quota-User": "half"}
    assert until_rejected(lambda: ns.get("a", **spent), 6)[0] == 5
    assert [rejected(ns.get("a", **half)) for _ in range(2)] == [False, False]
    flood(server, "demo", ROOM)
    before = server.memory()
    statuses = flood(server, "demo", STRANGERS)
    assert set(statuses) <= {404, 429} and sum(statuses.values()) == STRANGERS
    growth = server.memory() - before
    assert growth < GROWTH_BYTES_MAX, f"{growth >> 20} MiB for {STRANGERS} names"
    # Who was there keeps its bucket: no fresh burst for one, nothing lost for the other.
    assert all(rejected(ns.get("a", **spent)) for _ in range(3))
    assert [rejected(ns.get("a", **half)) for _ in range(4)] == [False] * 3 + [True]
    # Strangers for whom there was no room shared what they had, and are added up in the books.
    assert statuses[429] > STRANGERS - 2 * ROOM
    report = usage(ns.client, "demo")
    assert len({row["caller"] for row in report["rows"]}) <= ROOM + 1
    admitted = sum(row["requests"] for row in report["rows"])
    refused = sum(row["rejected"] for row in report["rows"])
    assert admitted == server.metric("umbo_requests_admitted_total")
    assert refused == server.metric("umbo_requests_rejected_total")
    assert admitted + refused == STRANGERS + ROOM + 6 + 2 + 3 + 4
    text = server.admin().get("/metrics").body.decode()
    assert len(re.findall(r"^umbo_policy_buckets", text, re.M)) <= 4
    assert len(text) < 200_000, "no series for each of them"


def test_a_stranger_is_served_though_all_places_are_taken(new_server):
    """With room again, names that come later are told apart again."""
    server = started(new_server({"quota": {"accounts_max": 64, "buckets_max": 64}}))
    ns = server.namespace()
    put_policy(ns.client, policy("each", 1_000, per=["caller"], burst=1_000))
    statuses = flood(server, "demo", 5_000)
    assert statuses.get(404, 0) > 1_000
    own = Namespace(server.client(), "demo")
    asked, refused = 1, own.get("a")
    while rejected(refused) and asked < 50:
        rest(server, wait_ms(refused))
        asked, refused = asked + 1, own.get("a")
    assert refused.status == 404
    report = usage(ns.client, "demo")
    assert sum(row["requests"] + row["rejected"] for row in report["rows"]) == 5_000 + asked
