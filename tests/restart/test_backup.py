"""Backups of servers that serve, put back into other folders with other numbers of shards."""

import hashlib
import json
import os
import shutil
import threading

import pytest

from bulk import run, start
from bulk_loads import Load, activate, build, lines, versions
from harness import memory_folder, wait_until
from objects import served_objects

LARGE = b"0123456789abcdef" * (3 << 16)
SHARDS = "7"


class Writer(threading.Thread):
    """Writes the rows of one partition one after the other, each once."""

    def __init__(self, server, name):
        super().__init__(daemon=True)
        self.ns = server.namespace("written")
        self.name, self.acknowledged, self.has_ended = name, 0, threading.Event()

    def run(self):
        while not self.has_ended.is_set():
            number = self.acknowledged
            answer = self.ns.put(self.name, f"{number:08}", f"{number}".encode())
            assert answer.status in (201, 204, 200), answer
            self.acknowledged = number + 1

    def end(self):
        self.has_ended.set()
        self.join()


@pytest.fixture
def place():
    """An empty folder for backups."""
    with memory_folder() as path:
        yield path


def restored(new_server, backup, place, name="restored", *options):
    """A server on what was restored: alone with other shards, or with nodes whose map is another."""
    server = new_server(name=name)
    if server.tier:
        for node in server.tier.nodes.values():
            to = ["--data", str(node.data), "--map", str(server.tier.map_file), "--node", node.name]
            run(server, "restore", "--from", str(backup), *to, *options, folder=place)
    else:
        to = ["--data", str(server.data), "--shards", SHARDS]
        run(server, "restore", "--from", str(backup), *to, *options, folder=place)
    return server.start()


def rows_of(ns):
    """Everything that clients see of the rows of a namespace, versions included."""
    return {(row.get("pk"), row.get("sk", "")): row for row in ns.scan_all()}


def policies(server):
    return [one["policy"] for one in server.client().get("/admin/v1/quotas").json()["policies"]]


def everything(server):
    """A bit of everything that a server keeps; returns what is to be found again."""
    ns = server.namespace("mixed", b'{"default_ttl": 50000}')
    for number in range(200):
        assert ns.put(f"p{number}", f"s{number % 3}", f"v{number}".encode(), content_type="text/x").status == 201
    assert ns.put("lasting", "s", b"x", Umbo_Expires_At="4102444800000").status == 201
    assert ns.put("large", "s", LARGE).status == 201
    assert ns.delete("p7", "s1").status == 204
    versioned = server.namespace("versioned")
    for number in range(100):
        versioned.put(f"old{number}", "", b"old")
    build(versioned, [{"pk": f"new{number}", "v": "new"} for number in range(150)], guards={"rows_change_max": 100}).wait_for("ready")
    assert activate(versioned, 2).status == 200
    versioned.put("beside", "", b"of a client")
    # In both versions, as every write is: two rows of one shard have the same bytes.
    assert versioned.put("large", "", LARGE).status == 201
    policy = {"name": "few", "unit": "requests", "rate": 1e6, "mode": "shadow"}
    assert server.client().put("/admin/v1/quotas/few", json.dumps(policy)).status == 201
    gone = server.namespace("gone")
    gone.put("x", "", b"x")
    server.client().delete("/admin/v1/namespaces/gone")
    return ns, versioned


def test_a_backup_restores_everything_into_other_shards(new_server, place):
    server = new_server().start()
    ns, versioned = everything(server)
    before, of_versions = rows_of(ns), rows_of(versioned)
    said = run(server, "backup", "--to", str(place / "backup"), folder=place)
    assert "4 shards" in said or "12 shards" in said, said
    run(server, "backup", "verify", "--from", str(place / "backup"), folder=place)
    quotas = policies(server)
    server.stop()

    after = restored(new_server, place / "backup", place)
    again, versioned = after.namespace("mixed"), after.namespace("versioned")
    assert rows_of(again) == before
    assert rows_of(versioned) == of_versions
    for key in before:
        assert again.get(*key).status == 200, key
    assert hashlib.sha256(again.get("large", "s").body).digest() == hashlib.sha256(LARGE).digest()
    assert again.get("p1", "s1").headers["content-type"] == "text/x"
    assert {number: one["state"] for number, one in versions(versioned).items()}.get(2) == "live"
    assert policies(after) == quotas and "few" in [one["name"] for one in quotas]
    names = [one["name"] for one in after.client().get("/admin/v1/namespaces").json()["namespaces"]]
    assert sorted(names) == ["mixed", "versioned"]
    # Versions go on, and the version before can be live again.
    newer = int(again.put("p1", "s1", b"newer").headers["etag"].strip('"'))
    assert newer > max(int(row["version"]) for row in before.values() if "version" in row)
    assert versioned.client.post("/v1/ns/versioned/versions/rollback").status == 200
    assert versioned.get("old3").status == 200 and versioned.get("new3").status == 404
    assert versioned.get("beside").status == 200 and versioned.get("large").body == LARGE
    after.stop()
    # A large value that no row refers to any more is reclaimed, so its references were restored too.
    after = after.start()
    assert after.namespace("mixed").get("large", "s").body == LARGE
    after.stop()


def test_a_backup_beside_writers_is_of_one_state_of_each_shard(new_server, place):
    server = new_server().start()
    writers = [Writer(server, f"w{number}") for number in range(8)]
    for writer in writers:
        writer.start()
    wait_until(lambda: all(writer.acknowledged > 20 for writer in writers), "all writers write")
    before = [writer.acknowledged for writer in writers]
    run(server, "backup", "--to", str(place / "backup"), folder=place)
    after = [writer.acknowledged + 1 for writer in writers]
    [writer.end() for writer in writers]
    server.stop()
    again = restored(new_server, place / "backup", place)
    found = again.namespace("written")
    for writer, least, most in zip(writers, before, after):
        rows = [row["sk"] for row in found.range_all(writer.name)]
        assert rows == [f"{number:08}" for number in range(len(rows))], "a row is missing before others"
        assert least <= len(rows) <= most, (least, len(rows), most)
    again.stop()


@pytest.mark.embedded("the dispatcher is killed with its nodes, whose shards are too small for a file")
def test_a_backup_of_a_server_that_is_killed_is_made_anew(new_server, place):
    server = new_server({"store": {"shards": 1}}).start()
    ns = server.namespace("killed")
    rows = [{"pk": f"p{n}", "v": "x" * 1_000} for n in range(12_000)]
    for at in range(0, len(rows), 2_000):
        assert ns.write(rows[at : at + 2_000]).status == 200
    backup = start(server, "backup", "--to", str(place / "backup"), "--share", "2", folder=place)
    # A file is written when it is full, and there is more to come.
    wait_until(lambda: list((place / "backup").glob("*.rows")), "a file is written")
    server.kill()
    server.arguments = ["--listen", f"127.0.0.1:{server.port}", "--admin-listen", "127.0.0.1:0"]
    server.start()
    assert server.namespace("killed").put("since", value=b"then").status == 201
    said = backup.communicate(timeout=200)[1].decode()
    assert backup.returncode == 0 and "beginning again" in said, said
    run(server, "backup", "verify", "--from", str(place / "backup"), folder=place)
    server.stop()
    after = restored(new_server, place / "backup", place)
    found = rows_of(after.namespace("killed"))
    assert len(found) >= len(rows) and {(row["pk"], "") for row in rows} <= found.keys()
    after.stop()


def test_a_load_under_way_has_failed_after_a_restore_and_can_be_made_again(new_server, place):
    server = new_server().start()
    ns = server.namespace("loaded")
    ns.put("kept", "", b"kept")
    load = Load.create(ns.client, "loaded", mode="replace")
    assert load.put(0, lines([{"pk": f"new{number}", "v": "v"} for number in range(50)])).status == 201
    run(server, "backup", "--to", str(place / "backup"), folder=place)
    server.stop()
    after = restored(new_server, place / "backup", place)
    ns = after.namespace("loaded")
    info = load.through(ns.client).info()
    assert info["state"] == "failed" and "backup" in info["reason"], info
    assert [row["pk"] for row in ns.scan_all()] == ["kept"]
    build(ns, [{"pk": f"new{number}", "v": "v"} for number in range(60)], guards={"rows_change_max": 100}).wait_for("ready")
    assert activate(ns, 2).status == 200 or activate(ns, 3).status == 200
    assert len(rows_of(ns)) == 60
    after.stop()


def test_a_version_that_is_ready_is_restored_and_can_be_activated(new_server, place):
    server = new_server().start()
    ns = server.namespace("loaded")
    rows = [{"pk": f"new{number}", "v": "v"} for number in range(60)]
    load = build(ns, rows, guards={"rows_change_max": 100})
    load.wait_for("ready")
    run(server, "backup", "--to", str(place / "backup"), folder=place)
    server.stop()
    after = restored(new_server, place / "backup", place)
    ns = after.namespace("loaded")
    assert load.through(ns.client).info()["state"] == "ready"
    assert activate(ns, 2).status == 200
    assert len(rows_of(ns)) == 60
    after.stop()


def test_one_namespace_is_restored_without_the_others(new_server, place):
    server = new_server().start()
    ns, _ = everything(server)
    before = rows_of(ns)
    run(server, "backup", "--to", str(place / "backup"), folder=place)
    server.stop()
    after = restored(new_server, place / "backup", place, "one", "--namespace", "mixed")
    assert rows_of(after.namespace("mixed")) == before
    names = [one["name"] for one in after.client().get("/admin/v1/namespaces").json()["namespaces"]]
    assert names == ["mixed"]
    assert rows_of(after.namespace("versioned")) == {}
    after.stop()


def test_a_damaged_file_of_a_backup_is_named(new_server, place):
    server = new_server().start()
    everything(server)
    backup = place / "backup"
    run(server, "backup", "--to", str(backup), folder=place)
    run(server, "backup", "--to", str(backup), folder=place, code=1)
    for file in sorted(backup.glob("*.rows"))[:2] + [backup / "records"]:
        whole = file.read_bytes()
        for damaged in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:], None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            run(server, "backup", "verify", "--from", str(backup), folder=place, code=1)
            into = ["--data", str(place / "into"), "--shards", "2"]
            said = run(server, "restore", "--from", str(backup), *into, folder=place, code=1)
            assert file.name in said, said
            file.write_bytes(whole)
            # What is not whole is not where a server looks for it.
            left = [one.name for one in (place / "into").glob("*")]
            assert left == ([] if file.name == "records" else ["restoring"]), left
            if left:
                said = run(server, "restore", "--from", str(backup), *into, folder=place, code=2)
                assert "not empty" in said, said
                shutil.rmtree(place / "into")
    (backup / "manifest.json").unlink()
    said = run(server, "backup", "verify", "--from", str(backup), folder=place, code=1)
    assert "no whole backup" in said, said
    server.stop()


def test_a_folder_that_is_used_is_not_restored_into(new_server, place):
    server = new_server().start()
    server.namespace("kept").put("row", "", b"row")
    run(server, "backup", "--to", str(place / "backup"), folder=place)
    (place / "used").mkdir()
    (place / "used" / "something").write_text("of somebody")
    into = ["--data", str(place / "used")]
    said = run(server, "restore", "--from", str(place / "backup"), *into, folder=place, code=2)
    assert "not empty" in said
    said = run(server, "restore", "--from", str(place / "nothing"), "--data", "x", folder=place, code=1)
    assert "no whole backup" in said
    server.stop()


@pytest.fixture
def object_store():
    with served_objects() as store:
        yield store


@pytest.mark.embedded("a backup goes to the same places wherever the shards are")
def test_a_backup_goes_to_an_object_store_and_comes_back(new_server, place, object_store, monkeypatch):
    for name, value in object_store.variables.items():
        monkeypatch.setitem(os.environ, name, value)
    server = new_server().start()
    ns, _ = everything(server)
    before = rows_of(ns)
    run(server, "backup", "--to", "s3://bucket/umbo/one", folder=place)
    run(server, "backup", "verify", "--from", "s3://bucket/umbo/one", folder=place)
    said = run(server, "backup", "--to", "s3://bucket/umbo/one/", folder=place, code=1)
    assert "has a backup already" in said
    said = run(server, "backup", "--to", "s3://nowhere/umbo", folder=place, code=1)
    assert "NoSuchBucket" in said
    server.stop()
    after = restored(new_server, "s3://bucket/umbo/one", place)
    assert rows_of(after.namespace("mixed")) == before
    after.stop()
