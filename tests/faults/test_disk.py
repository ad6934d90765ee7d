"""Disks that are full, files that are damaged, folders that cannot be used."""

import os
import subprocess

import pytest

from harness import Namespace, Server, wait_until

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 MiB. Needs root, like every mount."""
    if os.environ.get("UMBO_TESTS_NO_MOUNT") == "1":
        pytest.skip("told not to mount (UMBO_TESTS_NO_MOUNT)")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    assert mounted.returncode == 0, f"cannot mount ({mounted.stderr}); UMBO_TESTS_NO_MOUNT=1 skips"
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_stops_writes_and_nothing_else(new_server, small_disk):
    server = new_server()
    server.data = small_disk / "data"
    server.start()
    ns = server.namespace()
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (36 * MIB))
    kept, full = {}, None
    for number in range(2000):
        answer = ns.put(f"row-{number}", value=bytes([number % 256]) * 100_000)
        if answer.status != 201:
            full = answer
            break
        kept[f"row-{number}"] = answer.headers["etag"]
    problem = full.problem(507, "storage-full")
    assert problem["scope"] == "shard" and problem["outcome"] == "not-applied"
    assert problem["retry"]["after_ms"] >= 1 and int(full.headers["retry-after"]) >= 1

    def check():
        for number, (key, etag) in enumerate(kept.items()):
            read = ns.get(key)
            assert read.status == 200 and read.headers["etag"] == etag, (key, read)
            assert read.body == bytes([int(key.split("-")[1]) % 256]) * 100_000

    check()
    ns.get(f"row-{len(kept)}").problem(404, "key-not-found")
    assert len(ns.scan_all(keys_only=True)) == len(kept)
    batch = ns.write([{"pk": f"b{n}", "v": "x" * 500_000} for n in range(8)])
    assert batch.status == 207
    assert {row["status"] for row in batch.lines()[:-1]} <= {507, 201}

    filler.unlink()
    wait_until(lambda: ns.put("after", value=b"x").status in (201, 204), "writes succeed again")
    wait_until(
        lambda: all(ns.put(f"after-{n}", value=b"x").status in (201, 204) for n in range(30)),
        "writes to every shard succeed again",
    )
    check()
    shards = ns.client.get("/admin/v1/shards").json()["shards"]
    assert {shard["state"] for shard in shards} == {"available"}
    server.kill()
    server.start()
    ns = Namespace(server.client(), "demo")
    check_rows = {key: ns.get(key).headers.get("etag") for key in kept}
    assert check_rows == kept and ns.get("after").body == b"x"


def fill(disk):
    """Leaves no page of a file system free."""
    with pytest.raises(OSError), open(disk / "filler", "ab", buffering=0) as filler:
        while True:
            filler.write(bytes(1 << 12))


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_a_full_disk_does_not_keep_a_server_from_starting(new_server, small_disk, end):
    server = new_server({"store": {"shards": 4}})
    server.data = small_disk / "data"
    server.start()
    ns = server.namespace()
    keys = [f"key-{number}" for number in range(40)]
    assert ns.write([{"pk": key, "v": key * 100} for key in keys]).status == 200
    fill(small_disk)
    for _ in range(2):
        end(server)
        server.start()
        ns = Namespace(server.client(), "demo")
        for key in keys:
            assert ns.get(key).body == key.encode() * 100
        assert len(ns.scan_all()) == 40
        assert ns.client.get("/readyz").status == 200
        for key in keys:
            answer = ns.put("large-" + key, value=bytes(MIB))
            assert answer.problem(507, "storage-full")["outcome"] == "not-applied"
        assert len(ns.scan_all()) == 40
    (small_disk / "filler").unlink()
    wait_until(
        lambda: all(ns.put(key, value=b"after").status == 204 for key in keys),
        "writes to every shard succeed again",
    )
    end(server)
    server.start()
    ns = Namespace(server.client(), "demo")
    assert [row["v"] for row in ns.scan_all()] == ["after"] * 40


def shard_files(server):
    files = sorted(path for path in server.data.iterdir() if path.suffix == ".redb")
    assert len(files) >= 4, list(server.data.iterdir())
    return files


def truncated(file):
    with open(file, "r+b") as opened:
        opened.truncate(file.stat().st_size // 2 + 17)


def emptied(file):
    file.write_bytes(b"")


def overwritten(file):
    file.write_bytes(os.urandom(file.stat().st_size))


def scrambled_head(file):
    with open(file, "r+b") as opened:
        opened.write(os.urandom(512))


# The shard in which Umbo's own records are changed.
HOME = 0


@pytest.mark.parametrize("damage", [truncated, emptied, overwritten, scrambled_head])
@pytest.mark.parametrize("which", [0, 2])
def test_a_damaged_shard_is_named_and_the_others_serve(new_server, damage, which):
    server = new_server({"store": {"shards": 4}}).start()
    ns = server.namespace()
    keys = [f"key-{number}" for number in range(80)]
    ns.write([{"pk": key, "v": key * 100} for key in keys])
    server.stop()
    file = shard_files(server)[which]
    damage(file)
    before = file.read_bytes()
    server.start()
    client = server.client()
    ns = Namespace(client, "demo")
    assert any(file.name in line for line in server.logged("ERROR")), server.log_text()
    shards = client.get("/admin/v1/shards").json()["shards"]
    states = [shard["state"] for shard in shards]
    assert states.count("available") == 3 and states[which] == "unavailable"
    assert shards[which]["reason"]
    ready = client.get("/readyz")
    assert ready.status == 200 and ready.json()["status"] == "degraded"
    # Without its home, the copy of Umbo's own records that serves instead is a problem, too.
    wait_until(
        lambda: len(client.get("/readyz").json()["problems"]) == (2 if which == HOME else 1), "the problems are known"
    )
    assert str(server.folder) not in ready.body.decode()
    assert [each["name"] for each in client.get("/admin/v1/namespaces").json()["namespaces"]] == ["demo"]

    lost = []
    for key in keys:
        read = ns.get(key)
        if read.status == 200:
            assert read.body == key.encode() * 100
            assert ns.put(key, value=read.body).status == 204
        else:
            problem = read.problem(503, "shard-unavailable")
            assert problem["shard"] == which and problem["scope"] == "shard"
            assert "retry-after" in read.headers and str(server.folder) not in read.body.decode()
            written = ns.put(key, value=b"x")
            assert written.problem(503, "shard-unavailable")["outcome"] == "not-applied"
            lost.append(key)
    assert 0 < len(lost) < 80
    answer = ns.multi_get([{"pk": key} for key in keys])
    assert answer.status == 207
    assert [row["status"] for row in answer.lines()[:-1]].count(503) == len(lost)
    made = client.put("/admin/v1/namespaces/more")
    if which == HOME:
        assert made.problem(503, "records-unavailable")["outcome"] == "not-applied"
    else:
        assert made.status == 201
        # The damaged shard cannot say that it refuses work for the namespace: its name stays taken.
        removed = client.delete("/admin/v1/namespaces/more")
        assert removed.status == 202 and removed.json()["waiting_for"] == [which], removed
    server.stop()
    assert file.read_bytes() == before, "a damaged file is left for those who repair it"


@pytest.mark.parametrize("which", [0, 2])
def test_a_namespace_is_removed_though_a_shard_is_damaged(new_server, which):
    server = new_server({"store": {"shards": 4}}).start()
    ns, kept = server.namespace(), server.namespace("kept")
    rows = lambda: server.metric("umbo_shard_rows")
    assert kept.write([{"pk": f"key-{number}", "v": "x"} for number in range(40)]).status == 200
    without = rows()
    assert ns.write([{"pk": f"key-{number}", "v": "x"} for number in range(400)]).status == 200
    server.stop()
    file = shard_files(server)[which]
    whole = file.read_bytes()
    scrambled_head(file)
    server.start()
    client, path = server.client(), "/admin/v1/namespaces/demo"
    before = rows()
    dry = client.delete(path + "?dry_run=true")
    assert dry.problem(503, "shard-unavailable")["shard"] == which
    reads = [Namespace(client, "demo").get(f"key-{number}").status for number in range(400)]
    healthy = reads.count(200)
    assert 40 < healthy < 360 and reads.count(503) == 400 - healthy

    removed = client.delete(path)
    if which == 0:
        # The home of Umbo's own records: nothing changes without it.
        assert removed.problem(503, "records-unavailable")["outcome"] == "not-applied"
    else:
        assert removed.status == 202, removed
        assert removed.json() == {"name": "demo", "state": "removing", "waiting_for": [which]}
        Namespace(client, "demo").get("key-1").problem(404, "namespace-not-found")
        client.put(path).problem(409, "namespace-being-removed")
        (demo, _) = client.get("/admin/v1/namespaces").json()["namespaces"]
        assert (demo["state"], demo["waiting_for"]) == ("removing", [which])
        # Umbo's own records may have come or gone: they are few.
        wait_until(lambda: abs(before - healthy - rows()) < 20, "the rows of healthy shards go")
    server.stop()

    # The shard comes back as it was, with the rows.
    file.write_bytes(whole)
    server.start()
    client = server.client()
    if which == 0:
        reads = [Namespace(client, "demo").get(f"key-{number}").status for number in range(400)]
        assert reads.count(200) == 400, "a refused removal removes nothing"
        assert client.delete(path).status == 204
    wait_until(lambda: client.get(path).status == 404, "every shard has confirmed")
    wait_until(lambda: rows() < without + 20, "the rows of the shard that came back go")
    assert len(Namespace(client, "kept").scan_all()) == 40
    assert server.namespace().scan_all() == []


def test_a_changed_value_is_not_given_out(new_server):
    server = new_server({"store": {"shards": 4}}).start()
    ns = server.namespace()
    needle = b"a value that can be found in a file"
    ns.put("a", value=needle * 20)
    server.stop()
    changed = 0
    for file in shard_files(server):
        content = file.read_bytes()
        if needle in content:
            file.write_bytes(content.replace(needle, needle.replace(b"value", b"VALUE")))
            changed += 1
    assert changed
    server.start()
    ns = Namespace(server.client(), "demo")
    read = ns.get("a")
    assert b"VALUE" not in read.body
    assert read.status in (500, 503), read
    read.problem(read.status, "data-damaged" if read.status == 500 else "shard-unavailable")
    wait_until(lambda: server.logged("ERROR"), "the damage is logged")
    assert server.client().get("/healthz").status == 200


def fails_to_start(server, *texts, code=1):
    server.launch()
    assert server.wait() == code, server.log_text()
    for text in texts:
        assert text in server.log_text(), server.log_text()


def test_a_second_process_on_the_same_folder_is_refused(new_server):
    first = new_server().start()
    fails_to_start(new_server(), str(first.data))
    assert first.namespace().put("a").status == 201
    first.stop()
    new_server().start().stop()


def test_a_port_in_use_is_named(new_server):
    first = new_server(name="first").start()
    listen = {"listen": f"127.0.0.1:{first.port}", "admin_listen": "127.0.0.1:0"}
    second = new_server({"server": listen}, name="second")
    fails_to_start(second, f"127.0.0.1:{first.port}", "server.listen")
    assert not second.data.exists(), "nothing is touched before the ports are free"


def test_folders_that_cannot_be_used(new_server, folder):
    file = folder / "file"
    file.write_text("not a folder")
    server = new_server(name="a")
    server.data = file
    fails_to_start(server, str(file))
    server = new_server(name="b")
    server.data = file / "below"
    fails_to_start(server, str(file / "below"))
    server = new_server(name="c")
    server.data = "/proc/umbo-cannot-be-made"
    fails_to_start(server, "/proc/umbo-cannot-be-made")


def test_unknown_settings_are_named_with_the_nearest_known(new_server):
    fails_to_start(new_server({"server": {"lissten": "127.0.0.1:0"}}, name="a"), "lissten", "listen", code=2)
    fails_to_start(new_server({"stor": {}}, name="b"), "stor", "store", code=2)
    bad = {"UMBO__SERVER__DRAIN_DELY": "1s"}
    fails_to_start(new_server(environment=bad, name="c"), "UMBO__SERVER__DRAIN_DELY", code=2)
    fails_to_start(new_server({"server": {"drain_delay": "soon"}}, name="d"), "drain_delay", code=2)
    fails_to_start(new_server({"store": {"shards": 513}}, name="e"), "shards", code=2)


def test_another_number_of_shards_is_refused(new_server):
    server = new_server({"store": {"shards": 4}}).start()
    ns = server.namespace()
    ns.put("a", value=b"x")
    server.stop()
    fails_to_start(new_server({"store": {"shards": 8}}), "4", "8", "shards")
    again = new_server().start()
    assert Namespace(again.client(), "demo").get("a").body == b"x"


def test_a_missing_shard_file_is_no_new_empty_one(new_server):
    server = new_server({"store": {"shards": 4}}).start()
    server.namespace()
    server.stop()
    file = shard_files(server)[1]
    file.unlink()
    server.launch()
    wait_until(lambda: "umbo serves" in server.log_text() or not server.is_running(), "a decision")
    if server.is_running():
        assert any(file.name in line for line in server.logged("ERROR")), server.log_text()
        assert not file.exists(), "an empty shard would hide that rows are gone"
        server.kill()
    else:
        assert file.name in server.log_text()
        server.wait()
