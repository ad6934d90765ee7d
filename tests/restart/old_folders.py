"""Data folders that earlier versions have left, and what was acknowledged before they were killed.

`record` makes one: run as a program it has the server that UMBO_BIN names write a bit of everything, kills it amid
writes and packs its folder, which the tests of upgrades open. Decides nothing about what is right.
"""

import contextlib
import http.client
import json
import pathlib
import sys
import tarfile
import threading

from bulk_loads import Load, activate, build, lines
from harness import Namespace, Server, memory_folder, wait_until

# Each 16 bytes of it say where they belong.
LARGE = b"".join(b"%015d\n" % number for number in range(160_000))
# After any test of it.
LATE_MS = "4102444800000"
WRITERS = 4
# Acknowledged by each writer before the end.
WRITTEN_MIN = 25


def small_rows():
    return [{"pk": f"p{n % 40}", "sk": f"{n:04}", "v": f"v{n}"} for n in range(300)]


def packed_rows():
    return [{"pk": f"p{n}", "v": f"{n}: " + "a value that repeats itself; " * 40} for n in range(30)]


def version_rows(number):
    return [{"pk": f"p{n}", "v": f"of version {number}"} for n in range(50 + 10 * number)]


def part_rows(part):
    return [{"pk": f"p{part}-{n}", "v": f"of part {part}"} for n in range(20)]


def increment(ns, key):
    """Adds 2 to a row of a namespace, once for each key."""
    fields = {"Umbo-Increment": "2", "Idempotency-Key": key, "Umbo-Idempotency-TTL": "86400"}
    return ns.client.request("PATCH", ns.path("counted"), headers=fields)


def fill(server):
    """Writes a bit of everything; returns what only the server could say."""
    made = lambda client, name, grant: client.post("/admin/v1/tokens", {"name": name, "grants": [grant]}).json()["token"]
    root = made(server.client(), "root", "*:*")
    namespace = lambda name, body=b"": server.namespace(name, body, token=root)
    rows = namespace("rows")
    assert rows.write(small_rows()).status == 200
    assert rows.put("typed", "s", b"x", content_type="text/x").status == 201
    assert rows.put("lasting", "s", b"x", Umbo_Expires_At=LATE_MS).status == 201
    assert rows.put("large", "s", LARGE).status == 201
    assert rows.put("counted", value=b"40").status == 201
    counted = increment(rows, "once")
    assert counted.body == b"42", counted
    for row in small_rows()[::10]:
        assert rows.delete(row["pk"], row["sk"]).status == 204
    assert namespace("packed", b'{"compression":"zstd"}').write(packed_rows()).status == 200
    versioned = namespace("versioned")
    assert versioned.write(version_rows(1)).status == 200
    build(versioned, version_rows(2), guards={"rows_change_max": 100}).wait_for("ready")
    assert activate(versioned, 2).status == 200
    # As every write it is in both versions.
    assert versioned.put("large", value=LARGE).status == 201
    load = Load.create(rows.client, namespace("loading").name)
    assert load.put(0, lines(part_rows(0))).status == 201
    assert namespace("limited").put("row", value=b"x").status == 201
    few = {"name": "few", "unit": "requests", "rate": 0.001, "burst": 2.5, "match": {"namespace": "limited"}}
    assert rows.client.put("/admin/v1/quotas/few", json.dumps(few)).status == 201
    assert namespace("gone").put("row", value=b"x").status == 201
    assert rows.client.delete("/admin/v1/namespaces/gone").status == 204
    reader = made(rows.client, "reader", "read:rows")
    return {"root": root, "reader": reader, "load": load.id, "counted": counted.headers["etag"]}


def write_until_killed(server, token):
    """Kills the server amid writes; returns how many each writer knows to be there."""
    server.namespace("written", token=token)
    written = [0] * WRITERS

    def write(writer):
        ns = Namespace(server.client(token=token), "written")
        with contextlib.suppress(OSError, http.client.HTTPException):
            while ns.put(f"w{writer}", f"{written[writer]:08}", b"%d" % written[writer]).status == 201:
                written[writer] += 1

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    [writer.start() for writer in writers]
    wait_until(lambda: min(written) >= WRITTEN_MIN, "all writers write")
    server.kill()
    [writer.join() for writer in writers]
    return written


def record(path):
    """Makes the folder of a killed server and packs it, with what was acknowledged."""
    with memory_folder() as folder, Server(folder, {"store": {"shards": 2}}) as server:
        server.start()
        told = fill(server)
        told["written"] = write_until_killed(server, told["root"])
        told["at"] = server.clock.time()
        (folder / "told.json").write_text(json.dumps(told))
        with tarfile.open(path, "w:xz", preset=9) as packed:
            for name in ("data", "told.json"):
                packed.add(folder / name, name, filter=without_owner)


def without_owner(entry):
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(path, folder):
    """Puts the folder where a server has its data; returns what was acknowledged."""
    with tarfile.open(path) as packed:
        packed.extractall(folder, filter="data")
    return json.loads((folder / "told.json").read_text())


if __name__ == "__main__":
    record(pathlib.Path(sys.argv[1]))
