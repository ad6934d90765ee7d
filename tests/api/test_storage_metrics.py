"""What the storage tells of itself: how long the disk takes, and what memory answers."""

from harness import wait_until


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
