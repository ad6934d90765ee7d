"""Shards that move with steps left out: whatever an operator forgets, no two nodes serve one shard."""

import shutil
import signal
import tomllib

from bulk import step_until
from harness import Namespace, wait_until
from test_maps import begin, map_versions, plan, umbo
from tier import Node
from writers import check, total


class Move:
    """The move of some shards from the first node that gives one away to a new node, step by step."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.ns, self.writers = begin(cluster, 6)
        self.target, self.moves, self.added = plan(cluster, folder)
        self.giver = cluster.nodes[self.moves[0]["from"]]
        self.old = folder / "old.toml"
        self.old.write_text(cluster.tier.map_file.read_text())
        # The step that is left out: this node is never given the new map.
        self.giver.map_file = self.old
        self.shards = {move["shard"] for move in self.moves}
        self.own = [move for move in self.moves if move["from"] == self.giver.name]

    def end_writers(self):
        [writer.end() for writer in self.writers]

    def give_map(self):
        """To all but the giver."""
        self.cluster.tier.write_map(self.target.read_text())
        others = [node for node in self.cluster.nodes.values() if node is not self.giver and node.is_running()]
        for process in [*self.cluster.dispatchers, *others]:
            process.process.send_signal(signal.SIGHUP)

    def copy(self, moves):
        self.added.data.mkdir(parents=True, exist_ok=True)
        for move in moves:
            source = self.cluster.nodes[move["from"]].data / move["file"]
            shutil.copy2(source, self.added.data / move["file"])

    def states(self):
        answer = self.cluster.dispatchers[0].client().get("/admin/v1/shards").json()
        return {one["shard"]: one["state"] for one in answer["shards"]}

    def wait_until_all_serve(self):
        """Waits for the newest map, too: under it a node opens a shard once more that moved away and came back."""
        version = tomllib.loads(self.cluster.tier.map_file.read_text())["version"]
        running = [node.name for node in self.cluster.nodes.values() if node.is_running()]
        newest = dict.fromkeys(running, version)
        clock = self.cluster.tier.clock
        # A node that could not open a file tries again after some time.
        goes_by_it = lambda: newest.items() <= map_versions(self.cluster).items()
        step_until(clock, goes_by_it, "all nodes go by the newest map")
        step_until(clock, lambda: set(self.states().values()) == {"available"}, "all shards serve", step=0.5)


def refused(node):
    """Starts a node that must not; returns what it said."""
    node.launch()
    assert node.wait() != 0, node.log_text()
    return node.log_text()


def hang_up(*processes):
    for process in processes:
        if isinstance(process, Node):
            # Before a node answers, the signal would end it.
            wait_until(lambda: process.readiness() is not None, "the node answers")
        process.process.send_signal(signal.SIGHUP)


def test_a_node_with_the_old_map_does_not_open_its_own_older_file(new_cluster, folder):
    cluster = new_cluster().start()
    move = Move(cluster, folder)
    giver, added = move.giver, move.added
    # As it was documented once: stop, copy, give everybody but one node the map, start.
    giver.stop()
    others = {one["from"] for one in move.moves} - {giver.name}
    for name in others:
        cluster.nodes[name].stop()
    move.copy(move.moves)
    move.give_map()
    for name in others:
        cluster.nodes[name].start()
    cluster.nodes["d"] = added
    added.launch()
    # The copies have no stamp, so the new node serves none of them.
    named = lambda: all(any(one["file"] in line for line in added.log) for one in move.moves)
    wait_until(named, "the files are named")
    assert "has not given this file away" in added.log_text()
    assert "umbo shard release" in added.log_text()
    # And the old one does not start, because the others have a newer map.
    said = refused(giver)
    assert "version 2" in said and "version 1" in said and "umbo cluster map" in said, said
    # It remembers that, whichever node answers the next time.
    for node in cluster.nodes.values():
        if node.is_running():
            node.stop()
    said = refused(giver)
    assert "has seen version 2" in said, said
    # As the error says: the newest map, the files once more. Nothing that was acknowledged is lost.
    giver.map_file = cluster.tier.map_file
    for name in [giver.name, *others]:
        cluster.nodes[name].start()
    move.copy(move.moves)
    for node in cluster.nodes.values():
        if not node.is_running():
            node.start()
    move.wait_until_all_serve()
    before = total(move.writers)
    wait_until(lambda: total(move.writers) > before, "the writers go on")
    move.end_writers()
    check(Namespace(cluster.dispatchers[0].client(), "maps"), move.writers)
    cluster.stop()


def test_a_file_that_was_released_opens_only_at_its_new_node(new_cluster, folder):
    cluster = new_cluster().start()
    move = Move(cluster, folder)
    giver, added = move.giver, move.added
    giver.stop()
    done = umbo("shard", "release", "--map", move.target, "--data", giver.data, "-o", "json")
    assert done.returncode == 0, done
    assert '"given"' in done.stdout, done
    move.copy(move.own)
    move.give_map()
    cluster.nodes["d"] = added
    added.launch()
    own = {one["shard"] for one in move.own}
    wait_until(lambda: all(move.states().get(shard) == "available" for shard in own), "they serve")
    # Nobody else is there to tell the old node of the new map.
    for node in cluster.nodes.values():
        if node.is_running():
            node.stop()
    said = refused(giver)
    assert "has seen version 2" in said, said
    # Not even without its memory does it serve what it gave away.
    manifest = giver.data / "umbo.json"
    manifest.write_text(manifest.read_text().replace('"map_version": 2', '"map_version": 1'))
    giver.launch()
    for one in move.own:
        named = lambda: any(one["file"] in line and "given to node 'd'" in line for line in giver.log)
        wait_until(named, "the file is refused")
    giver.stop()
    giver.map_file = cluster.tier.map_file
    for node in cluster.nodes.values():
        node.launch()
    for node in cluster.nodes.values():
        if node is not added:
            node.wait_until_ready()
    move.copy([one for one in move.moves if one["from"] != giver.name])
    hang_up(added)
    move.wait_until_all_serve()
    move.end_writers()
    check(Namespace(cluster.dispatchers[0].client(), "maps"), move.writers)
    cluster.stop()


def test_shards_move_while_their_nodes_run(new_cluster, folder):
    cluster = new_cluster().start()
    move = Move(cluster, folder)
    move.giver.map_file = cluster.tier.map_file
    cluster.nodes["d"] = move.added
    move.give_map()
    move.added.launch()
    for name in {one["from"] for one in move.moves}:
        node = cluster.nodes[name]
        gone = lambda: sum("gave a shard away" in line for line in node.log) == sum(
            one["from"] == name for one in move.moves
        )
        # The giver looks at its map by itself from time to time.
        step_until(cluster.tier.clock, gone, "the files may be copied", step=0.5)
    move.copy(move.moves)
    hang_up(move.added)
    move.wait_until_all_serve()
    before = total(move.writers)
    wait_until(lambda: total(move.writers) > before + 20, "the writers go on")
    move.end_writers()
    check(Namespace(cluster.dispatchers[0].client(), "maps"), move.writers)
    cluster.stop()


def test_a_shard_is_taken_back_where_nobody_has_opened_it(new_cluster, folder):
    cluster = new_cluster().start()
    move = Move(cluster, folder)
    giver = move.giver
    giver.stop()
    assert umbo("shard", "release", "--map", move.target, "--data", giver.data).returncode == 0
    shards = ",".join(str(one["shard"]) for one in move.own)
    back = folder / "back.toml"
    moves = ",".join(f"{one['shard']}={one['from']}" for one in move.moves)
    done = umbo("cluster", "plan", "--map", move.target, "--move", moves, "--out", back)
    assert done.returncode == 0, done
    reclaim = ["shard", "reclaim", "--data", giver.data, "--shards", shards, "--map"]
    # Not under the map that gave them away, and not without a word.
    done = umbo(*reclaim, move.target, "--never-opened")
    assert done.returncode == 1 and "umbo cluster plan --move" in done.stderr, done
    done = umbo(*reclaim, back)
    assert done.returncode == 4 and "--never-opened" in done.stderr and "does not answer" in done.stderr, done
    done = umbo(*reclaim, back, "--never-opened")
    assert done.returncode == 0, done
    cluster.tier.write_map(back.read_text())
    giver.map_file = cluster.tier.map_file
    hang_up(*cluster.dispatchers, *(node for node in cluster.nodes.values() if node.is_running()))
    giver.start()
    move.wait_until_all_serve()
    move.end_writers()
    check(Namespace(cluster.dispatchers[0].client(), "maps"), move.writers)
    cluster.stop()


def test_a_shard_that_its_new_node_serves_is_not_taken_back(new_cluster, folder):
    cluster = new_cluster().start()
    move = Move(cluster, folder)
    move.end_writers()
    giver = move.giver
    giver.stop()
    assert umbo("shard", "release", "--map", move.target, "--data", giver.data).returncode == 0
    move.copy(move.own)
    move.give_map()
    cluster.nodes["d"] = move.added
    move.added.launch()
    back = folder / "back.toml"
    shard = move.own[0]["shard"]
    moved = umbo("cluster", "plan", "--map", move.target, "--move", f"{shard}={giver.name}", "--out", back)
    assert moved.returncode == 0, moved
    wait_until(lambda: move.states().get(shard) == "available", "it serves")
    done = umbo("shard", "reclaim", "--map", back, "--data", giver.data, "--shards", shard, "--never-opened")
    assert done.returncode == 4 and f"node 'd' serves shard {shard}" in done.stderr, done
    # A process with an old map gets the newest one, once a node of the old one has heard of it.
    found = folder / "found.toml"

    def finds_the_newest():
        found.unlink(missing_ok=True)
        done = umbo("cluster", "map", "--map", move.old, "--out", found)
        assert done.returncode == 0, done
        return found.read_text() == move.target.read_text()

    wait_until(finds_the_newest, "a node of the old map has heard of the newest one")


def test_a_node_is_refused_by_a_map_of_its_own_that_is_not_the_newest(new_cluster, folder):
    """A whole cluster starts at once; a node alone, where it has heard of nothing newer."""
    cluster = new_cluster().start()
    for node in cluster.nodes.values():
        node.stop()
    for node in cluster.nodes.values():
        node.launch()
    for node in cluster.nodes.values():
        node.wait_until_ready()
    first = cluster.nodes["a"]
    for name in ["b", "c"]:
        cluster.nodes[name].stop()
    first.restart()
    for name in ["b", "c"]:
        cluster.nodes[name].start()
    cluster.stop()
