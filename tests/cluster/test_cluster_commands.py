"""`umbo cluster` and `umbo shard`: plans, bad maps, folders looked at, and what they end with."""

import json
import os
import subprocess
import tomllib

import pytest

from harness import binary

OK, FAILED, USAGE, NOT_FOUND, PRECONDITION, OVERLOAD = 0, 1, 2, 3, 4, 6
SLOTS = 4096
THREE = "a=shard-a:7411,b=shard-b:7411,c=shard-c:7411"


class Shell:
    """Runs `umbo` in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *arguments, code=OK, **variables):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}
        done = subprocess.run(
            [binary(), *map(str, arguments)],
            env=clean | variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, (arguments, done)
        assert code == OK or done.stderr, (arguments, done)
        assert "panicked" not in done.stderr, done
        return done

    def json(self, *arguments, **more):
        return json.loads(self(*arguments, "-o", "json", **more).stdout)

    def path(self, name):
        return self.folder / name

    def write(self, name, text):
        self.path(name).write_text(text)
        return name


@pytest.fixture
def shell(folder):
    return Shell(folder)


@pytest.fixture
def first(shell):
    """The map of a cluster of three nodes with 24 shards."""
    shell("cluster", "plan", "--nodes", THREE, "--cluster-id", "geo-eu", "--out", "first.toml")
    return "first.toml"


def owners(text):
    """Slot to node, read from a map's text by somebody else's eyes."""
    slots = {}
    for shard in tomllib.loads(text)["shards"]:
        for part in shard["slots"]:
            first, _, last = part.partition("-")
            for slot in range(int(first), int(last or first) + 1):
                assert slot not in slots
                slots[slot] = shard["node"]
    assert len(slots) == SLOTS
    return slots


def test_a_first_map_is_total_even_and_readable(shell, first):
    text = shell.path(first).read_text()
    told = tomllib.loads(text)
    assert (told["cluster_id"], told["version"], len(told["shards"])) == ("geo-eu", 1, 24)
    assert told["nodes"] == dict(pair.split("=") for pair in THREE.split(","))
    owned = list(owners(text).values())
    counts = [owned.count(node) for node in "abc"]
    assert max(counts) - min(counts) <= 1
    checked = shell.json("shard", "verify", "--map", first)
    assert (checked["cluster_id"], checked["nodes"], checked["shards"]) == ("geo-eu", 3, 24)


def test_two_clusters_that_nobody_names_have_two_names(shell):
    plans = [shell.json("cluster", "plan", "--nodes", "a=h:1") for _ in range(2)]
    assert plans[0]["cluster_id"] != plans[1]["cluster_id"]
    assert all(plan["shards"] == 8 and plan["moves"] == [] for plan in plans)


def test_the_map_goes_to_standard_output_where_it_is_asked_for(shell):
    asked = ["cluster", "plan", "--nodes", THREE, "--shards", "5", "--cluster-id", "x", "--out", "-"]
    assert len(tomllib.loads(shell(*asked).stdout)["shards"]) == 5


def test_a_plan_moves_as_little_as_it_can_and_says_which_files(shell, first):
    asked = ["cluster", "plan", "--map", first, "--nodes", "a,b,c,d=shard-d:7411"]
    plan = shell.json(*asked, "--out", "second.toml")
    assert (plan["version_before"], plan["version"]) == (1, 2)
    assert [node["shards"] for node in plan["nodes"]] == [6, 6, 6, 6]
    assert len(plan["moves"]) == 6 and {move["to"] for move in plan["moves"]} == {"d"}
    move = plan["moves"][0]
    assert move["file"] == f"shard-{move['shard']:03}.redb"
    assert move["from_address"] == f"shard-{move['from']}:7411"
    assert move["to_address"] == "shard-d:7411"

    before, after = owners(shell.path(first).read_text()), owners(plan["map"])
    moved = sum(before[slot] != after[slot] for slot in before)
    assert moved == sum(move["slots"] for move in plan["moves"])
    assert shell.path("second.toml").read_text() == plan["map"]
    shell("shard", "verify", "--map", "second.toml", "--before", first)

    lines = shell(*asked).stdout.splitlines()
    assert lines[0].split() == ["NODE", "ADDRESS", "SHARDS", "BEFORE", "SLOTS", "SHARE"]
    header = lines.index("") + 1
    assert lines[header].split()[:4] == ["SHARD", "SLOTS", "FILE", "FROM"]
    assert len(lines) == header + 1 + 6
    steps = shell(*asked).stderr
    order = ["to all nodes and dispatchers", "stop the nodes a, b, c, d", "copy each file", "start the nodes"]
    assert [steps.index(step) for step in order] == sorted(steps.index(step) for step in order)

    again = shell("cluster", "plan", "--map", "second.toml", "--nodes", "a,b,c,d")
    assert "nothing to change" in again.stderr


def test_a_node_that_only_moves_house_moves_no_file(shell, first):
    plan = shell.json("cluster", "plan", "--map", first, "--nodes", "a,b,c=10.1.2.3:9000")
    assert (plan["version"], plan["moves"]) == (2, [])
    assert plan["nodes"][2]["address"] == "10.1.2.3:9000"


def test_a_map_is_replaced_only_by_one_that_follows_it(shell, first):
    text = shell.path(first).read_text()
    refused = shell("cluster", "plan", "--nodes", THREE, "--out", first, code=PRECONDITION)
    assert "does not follow" in refused.stderr and "geo-eu" in refused.stderr
    assert shell.path(first).read_text() == text
    shell.write("notes.txt", "not a map")
    shell("cluster", "plan", "--nodes", THREE, "--out", "notes.txt", code=USAGE)
    assert shell.path("notes.txt").read_text() == "not a map"
    # Over the map in effect, in place.
    shell("cluster", "plan", "--map", first, "--nodes", "a,b", "--out", first)
    assert tomllib.loads(shell.path(first).read_text())["version"] == 2


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--nodes", "a"], "'a' has no address"),
        (["--nodes", "a=h"], "no port"),
        (["--nodes", "a=h:0"], "1 to 65535"),
        (["--nodes", "A=h:1"], "[a-z0-9._-]"),
        (["--nodes", "a=h:1,a=h:2"], "'a' is listed twice"),
        (["--nodes", "a=h:1,b=h:1"], "have the same address"),
        (["--nodes", "a=h:1,b=h:2", "--shards", "1"], "too few"),
        (["--nodes", "a=h:1", "--shards", "513"], "1 to 512 shards"),
        (["--nodes", "a=h:1", "--shards", "0"], "0"),
        (["--nodes", "a=h:1", "--cluster-id", "My Cluster"], "cluster_id"),
        ([], "--nodes"),
        (["--map", "first.toml", "--nodes", "a", "--shards", "9"], "--shards"),
        (["--map", "first.toml", "--nodes", "a", "--cluster-id", "x"], "--cluster-id"),
        (["--map", "first.toml", "--nodes", "d"], "'d' has no address"),
    ],
)
def test_what_cannot_be_planned_says_why(shell, first, arguments, words):
    refused = shell("cluster", "plan", *arguments, code=USAGE)
    assert words in refused.stderr and refused.stdout == ""


@pytest.mark.parametrize(
    "change, words",
    [
        (('"0-170"', '"0-169"'), "slot 170 has no owner"),
        (('"0-170"', '"0-171"'), "slot 171 is owned by shard 0 and by shard 1"),
        (('"0-170"', '"0-9999"'), "0-9999"),
        (('"0-170"', '"one"'), "'one' is not a range of slots"),
        (('["0-170"]', "[]"), "shard 0 has no slots"),
        (("id = 23", "id = 22"), "shard 22 is listed twice"),
        (("id = 23", "id = 99"), "shard 23 is missing"),
        (('node = "c"', 'node = "d"'), "node 'd', which is not in [nodes]"),
        (('node = "c"', 'node = "sea"'), "node 'sea'"),
        (('"shard-c:7411"', '""'), "node 'c' has no address"),
        (('"shard-c:7411"', '"shard-c"'), "not an address like shard-a:7411"),
        (('"shard-c:7411"', '"shard-b:7411"'), "have the same address"),
        (('"geo-eu"', '"GEO EU"'), "[a-z0-9._-]"),
        (("version = 1", "version = 0"), "from 1"),
        (("version = 1", "versoin = 1"), "did you mean 'version'?"),
        (("version = 1", "version = -1"), "line 3"),
        (("version = 1", ""), "version"),
        (('node = "a"', 'nod = "a"'), "did you mean 'node'?"),
        (('node = "a"', 'node = "a"\nmoves = 1'), "'from' contradict each other"),
        (("[nodes]", "[nodes"), "line 5"),
    ],
)
def test_a_bad_map_is_refused_by_name(shell, first, change, words):
    text = shell.path(first).read_text()
    assert change[0] in text
    bad = shell.write("bad.toml", text.replace(*change, 1))
    refused = shell("shard", "verify", "--map", bad, code=USAGE)
    assert words in refused.stderr and "bad.toml" in refused.stderr
    assert refused.stdout == ""
    shell("cluster", "plan", "--map", bad, "--nodes", "a,b", code=USAGE)


@pytest.mark.parametrize(
    "change, words",
    [
        (("version = 2", "version = 1"), "a change needs a higher version"),
        (('"geo-eu"', '"geo-us"'), "'geo-us'"),
        (("moves = 1\nfrom = \"c\"\n", ""), "moves = 1"),
        (("moves = 1", "moves = 7"), "cannot have 7"),
        (('"0-170"', '"0-169"'), "shard 0 other slots"),
    ],
)
def test_a_map_that_does_not_follow_is_refused_by_name(shell, first, change, words):
    plan = shell.json("cluster", "plan", "--map", first, "--nodes", "a,b")
    text = plan["map"].replace(*change, 1)
    assert text != plan["map"]
    next_map = shell.write("next.toml", text.replace('"171-341"', '"170-341"') if "169" in text else text)
    asked = ["shard", "verify", "--map", next_map, "--before", first]
    assert words in shell(*asked, code=PRECONDITION).stderr


def test_hostile_bytes_are_no_map(shell):
    for at, data in enumerate([b"\x00\xff\xfe", b"[" * 100_000, b"#" * 2_000_000, b""]):
        path = shell.path(f"hostile-{at}.toml")
        path.write_bytes(data)
        done = shell("shard", "verify", "--map", path, code=FAILED if at == 0 else USAGE)
        assert path.name in done.stderr
    shell("shard", "verify", "--map", "absent.toml", code=FAILED)


def test_the_settings_name_the_map(shell, first):
    assert "there is no map" in shell("shard", "verify", code=USAGE).stderr
    shell.write("umbo.toml", '[cluster]\nmap = "first.toml"\n')
    assert shell.json("shard", "verify")["cluster_id"] == "geo-eu"


@pytest.mark.parametrize(
    "text, words",
    [
        ('[cluster]\nnode = "a"\n', "cluster.map"),
        ('[cluster]\ncertificate = "a.pem"\n', "cluster.key"),
        ('[cluster]\nkey = "a.pem"\n', "cluster.certificate"),
        ('[cluster]\nca = "a.pem"\n', "cluster.certificate"),
        ('[cluster]\nmapp = "a.toml"\n', "did you mean 'cluster.map'?"),
        ('[shard]\nlisten = "127.0.0.1:7412"\n', "shard.admin_listen"),
        ("[shard]\nin_flight_max = 0\n", "16 to 1000000"),
        ('[shard]\nrequest_memory = "1KiB"\n', "64MiB to 1TiB"),
    ],
)
def test_settings_of_a_cluster_that_do_not_hold_are_refused(shell, text, words):
    file = shell.write("settings.toml", text)
    assert words in shell("config", "check", file, code=USAGE).stderr


def test_the_check_of_settings_reads_the_map(shell, first):
    settings = '[cluster]\nmap = "first.toml"\nnode = "{}"\n'
    good = shell("config", "check", shell.write("good.toml", settings.format("b")))
    assert "cluster: geo-eu, version 1" in good.stdout
    unknown = shell.write("unknown.toml", settings.format("z"))
    assert "has no node 'z'" in shell("config", "check", unknown, code=USAGE).stderr
    shell.write(first, shell.path(first).read_text().replace('"0-170"', '"0-169"'))
    gap = shell("config", "check", "good.toml", code=USAGE)
    assert "slot 170 has no owner" in gap.stderr


def test_a_folder_that_is_not_there_yet_is_new(shell, first):
    shell.path("data").mkdir()
    asked = ["shard", "verify", "--map", first, "--data", "data"]
    assert "name the node" in shell(*asked, code=FAILED).stderr
    checked = shell.json(*asked, "--node", "b")
    assert [file["state"] for file in checked["files"]] == ["new"] * 8
    assert os.listdir(shell.path("data")) == []
    unknown = shell(*asked, "--node", "z", code=FAILED)
    assert "no node 'z'" in unknown.stderr

    second = shell.json("cluster", "plan", "--map", first, "--nodes", "a,b", "--out", "second.toml")
    into_b = [move["shard"] for move in second["moves"] if move["to"] == "b"]
    asked = ["shard", "verify", "--map", "second.toml", "--data", "data", "--node", "b"]
    lines = shell(*asked, code=FAILED).stdout.splitlines()[1:]
    told = {int(line.split()[0]): line for line in lines}
    assert "bad" in told[0 + 8] and "the cluster is not new" in told[8]
    for shard in into_b:
        assert "stop it on node 'c', and copy the file" in told[shard]
        assert f"--create-shards {shard}" in told[shard]


def test_the_folder_of_a_server_on_its_own_is_no_nodes(shell, first, new_server):
    server = new_server(name="alone").start()
    server.stop()
    before = {path.name: path.read_bytes() for path in (shell.path("alone") / "data").iterdir() if path.is_file()}
    asked = ["shard", "verify", "--map", first, "--data", shell.path("alone") / "data"]
    refused = shell(*asked, "--node", "a", code=FAILED)
    assert "belongs to a standalone server" in refused.stderr
    after = {path.name: path.read_bytes() for path in (shell.path("alone") / "data").iterdir() if path.is_file()}
    assert after == before


def test_shards_and_nodes_of_a_server_on_its_own(shell, server):
    there = {"UMBO_SERVER": f"http://127.0.0.1:{server.port}"}
    shards = shell.json("shard", "ls", **there)
    assert sum(shard["slots"] for shard in shards) == SLOTS
    assert shell.json("shard", "describe", "1", **there) == shards[1]
    header, *lines = shell("shard", "ls", **there).stdout.splitlines()
    assert header.split()[:3] == ["SHARD", "NODE", "STATE"] and len(lines) == len(shards)
    missing = shell("shard", "describe", "99", code=NOT_FOUND, **there)
    assert "there is no shard 99" in missing.stderr
    assert shell.json("cluster", "status", **there) == {"nodes": []}
    assert "in the server's own process" in shell("cluster", "status", **there).stderr


def test_a_server_that_is_not_there_is_not_reached(shell):
    nobody = {"UMBO_SERVER": "http://127.0.0.1:9"}
    for command in (["cluster", "status"], ["shard", "ls"], ["shard", "describe", "0"]):
        shell(*command, code=OVERLOAD, **nobody)
