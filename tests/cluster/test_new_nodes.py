"""Shards of a loaded namespace that move to a node whose folder is new: it knows no datasets but those of its files."""

import threading

from bulk import step_until
from bulk_loads import Load, lines
from harness import wait_until
from test_maps import begin, carry_out, plan
from writers import check, total

ROWS = 900


def activate_a_load(ns):
    """Makes a loaded version the live one: its dataset has another id than the namespace."""
    load = Load.create(ns.client, ns.name, mode="replace")
    rows = [{"pk": f"old{n}", "v": "v"} for n in range(ROWS)]
    assert load.put(0, lines(rows)).status == 201
    load.seal(1)
    load.wait_for("ready")
    answer = ns.client.post(f"/v1/ns/{ns.name}/versions/2/activate")
    assert answer.status == 200, answer


class Reader(threading.Thread):
    """Reads rows that are there, and notes each that is said to be absent."""

    def __init__(self, ns):
        super().__init__(daemon=True)
        self.ns, self.absent, self.reads, self.has_ended = ns, [], 0, threading.Event()

    def run(self):
        while not self.has_ended.is_set():
            name = f"old{self.reads % ROWS}"
            self.reads += 1
            if self.ns.get(name, cache_control="no-cache").status == 404:
                self.absent.append(name)


def test_nothing_is_lost_or_absent_where_a_loaded_namespace_moves_to_a_new_folder(new_cluster, folder):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    activate_a_load(dispatcher.namespace("maps"))
    ns, writers = begin(cluster, count=6)
    reader = Reader(dispatcher.namespace("maps"))
    reader.start()
    target, moves, added = plan(cluster, folder)
    carry_out(cluster, target, moves, added)
    before = total(writers)
    wait_until(lambda: total(writers) > before + 40, "the writers go on")
    shards = lambda: dispatcher.client().get("/admin/v1/shards").json()["shards"]
    all_serve = lambda: all(one["state"] == "available" for one in shards())
    step_until(cluster.tier.clock, all_serve, "all shards serve", step=0.5)
    assert reader.is_alive(), "it has read to the end"
    reader.has_ended.set()
    [writer.end() for writer in writers]
    reader.join()
    assert reader.reads > 0 and reader.absent == []
    check(ns, writers)
    rows = [(row["pk"], row["sk"]) for row in ns.scan_all()]
    assert len(rows) == len(set(rows)), "a row is there twice"
    absent = [f"old{n}" for n in range(ROWS) if ns.get(f"old{n}", cache_control="no-cache").status != 200]
    assert absent == []
    cluster.stop()
