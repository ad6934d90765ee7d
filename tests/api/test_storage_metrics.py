"""What the storage tells of itself: how long the disk takes, and what memory answers."""

import pytest

from harness import wait_until


@pytest.mark.redb("syncs and caches of a cluster are its own")
def test_syncs_and_the_row_cache_are_counted(server, ns):
    names = ("umbo_shard_syncs_total", "umbo_shard_sync_seconds_total", "umbo_row_cache_hits_total", "umbo_row_cache_misses_total")
    counts = lambda: [server.metric(name) for name in names]
    before = counts()
    for at in range(20):
        assert ns.put(f"p{at}", value=b"x").status == 201
    for _ in range(3):
        for at in range(20):
            # Not from the cache of the dispatcher.
            assert ns.get(f"p{at}", Cache_Control="no-cache").status == 200

    def grown():
        syncs, seconds, hits, misses = (after - first for after, first in zip(counts(), before))
        # A dispatcher hears of what a node has counted a little later.
        return syncs >= 1 and seconds > 0 and hits >= 40 and misses >= 20

    wait_until(grown, "all of them have grown")


def of_namespace(server, name, *labels):
    """The value of a series of a namespace; 0 without one."""
    lines = server.admin().get("/metrics").body.decode().splitlines()
    series = f"umbo_namespace_{name}{{{','.join(labels)}}} "
    found = [line.removeprefix(series) for line in lines if line.startswith(series)]
    return float(found[0]) if found else 0.0


def test_the_use_of_a_namespace_is_counted(server, ns):
    namespace = f'namespace="{ns.name}"'
    totals = ("requests_total", "request_units_total", "rows_total", "read_bytes_total", "written_bytes_total")
    count = lambda: [of_namespace(server, name, namespace) for name in totals]
    refusals = lambda: of_namespace(server, "errors_total", namespace, 'outcome="refused"')
    before, refused = count(), refusals()
    assert ns.put("p", value=b"x" * 1_000).status == 201
    assert ns.get("p").status == 200
    # That a row is absent is an answer.
    assert ns.get("absent").status == 404
    assert ns.range("p", limit=0).status == 400

    def grown():
        requests, units, rows, read, written = (after - first for after, first in zip(count(), before))
        return requests >= 3 and units > 6 and rows >= 2 and read >= 1_000 and written >= 1_000 and refusals() == refused + 1

    wait_until(grown, "all of them have grown")
    # A change of its settings makes no other namespace of it.
    changed = server.client().request("PATCH", f"/admin/v1/namespaces/{ns.name}", b'{"default_ttl":3600}')
    assert changed.status == 200, changed
    assert ns.range("p", limit=0).status == 400
    wait_until(lambda: refusals() == refused + 2, "the refusal is counted with the others")
