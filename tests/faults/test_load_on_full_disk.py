"""A load for which the disk has no room waits, and goes on once there is."""

import json
import random

import pytest

from bulk import step_until
from bulk_loads import Load, lines
from harness import IS_CLUSTER, Namespace
from test_disk import small_disk  # noqa: F401  (a fixture)

#: Writes refused one after another until every one of the four shards surely was asked and is full.
FULL_AFTER = 40

pytestmark = pytest.mark.skipif(IS_CLUSTER, reason="the disk of a store in this process")


def test_a_load_waits_for_room(new_server, small_disk):  # noqa: F811
    server = new_server()
    server.data = small_disk / "data"
    server.start()
    ns = server.namespace("demo")
    numbers = random.Random(1)
    rows = [{"pk": f"p{n:05}", "v": numbers.randbytes(500).hex()} for n in range(6_000)]
    load = Load.create(ns.client, "demo", expected_rows=6_000)
    assert load.put(0, lines(rows)).status == 201
    # No more than a burst of it until the disk is full.
    server.clock.stop()
    policy = {"name": "slow", "match": {"operations": ["batch-write"]}, "per": ["caller"], "unit": "ru"}
    policy |= {"rate": 200, "burst": 200}
    assert ns.client.put("/admin/v1/quotas/slow", json.dumps(policy).encode()).status in (200, 201)
    load.seal(1)
    step_until(server.clock, lambda: "slow" in load.info().get("reason", ""), "it is being applied", step=0.05)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    # The shards still have pages that they were given before; these are used up too.
    refused, number = 0, 0
    while refused < FULL_AFTER:
        answer = ns.put(f"other-{number}", value=bytes(1 << 14))
        if answer.status == 507:
            answer.problem(507, "storage-full")
            refused += 1
        else:
            assert answer.status == 201, answer
            refused = 0
        number += 1
    step_until(server.clock, lambda: "full" in load.info().get("reason", ""), "it says that it waits for room")
    waiting = load.info()
    assert waiting["state"] == "building" and waiting["rows_applied"] < 6_000
    filler.unlink()
    assert ns.client.delete("/admin/v1/quotas/slow").status == 200
    server.clock.go()
    info = load.wait_for("live")
    assert info["rows_applied"] == 6_000 and "reason" not in info
    found = {row["pk"]: row["v"] for row in Namespace(server.client(), "demo").scan_all()}
    found = {pk: v for pk, v in found.items() if not pk.startswith("other-")}
    assert found == {row["pk"]: row["v"] for row in rows}
