"""Imports, loads and exports whose files are in an object store."""

import gzip
import json
import signal

import pytest

from bulk import files_of, run, start
from bulk_loads import versions
from harness import wait_until
from objects import served_objects

# Rows of more than 8 MiB, which an import sends as a load.
LONG_ROWS = 9_000


@pytest.fixture(scope="module")
def store():
    with served_objects() as store:
        yield store


@pytest.fixture(autouse=True)
def reached(store, monkeypatch):
    """Lets commands reach the object store."""
    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)


def text_of(count, word="value", length=10):
    rows = ({"pk": f"p{number:05}", "v": f"{word} {number} " + "x" * length} for number in range(count))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def values(server, namespace):
    return {row["pk"]: row["v"] for row in server.namespace(namespace).scan_all()}


@pytest.mark.parametrize("name", ["rows.ndjson", "rows.ndjson.gz", "rows.csv.zst", "rows.parquet", "a b%2Fc.csv"])
def test_what_is_exported_to_an_object_is_imported_from_it(server, store, folder, name):
    ns = server.namespace("stored")
    assert ns.write([{"pk": f"p{n}", "sk": "s", "v": f"é,{n}"} for n in range(500)]).status == 200
    address = f"s3://bucket/out/{name}"
    run(server, "kv", "export", "stored", "-f", address, folder=folder)
    said = run(server, "kv", "export", "stored", "-f", address, folder=folder, code=2)
    assert "exists already" in said, said
    run(server, "kv", "export", "stored", "-f", address, "--overwrite", folder=folder)
    copy = "copy-" + "".join(one if one.isalnum() else "-" for one in name.lower())
    said = run(server, "kv", "import", "--create", copy, address, folder=folder)
    assert "500 rows written, 0 failed" in said, said
    assert values(server, copy) == values(server, "stored")
    assert list(folder.iterdir()) == [] and not store.has_uploads()


def test_a_large_object_is_imported_as_a_load_and_its_rejects_are_here(server, store, folder):
    store.put("large.ndjson.gz", gzip.compress(text_of(LONG_ROWS, length=1_000) + b'{"pk":"bad"}\n', 0))
    address = "s3://bucket/large.ndjson.gz"
    said = run(server, "kv", "import", "--create", "large", address, "--part-mib", "1", folder=folder, code=7)
    assert f"{LONG_ROWS} rows written, 1 failed" in said, said
    assert len(values(server, "large")) == LONG_ROWS
    failed = "s3-bucket-large.ndjson.gz.failed.ndjson"
    assert [path.name for path in folder.iterdir()] == [failed]
    assert json.loads((folder / failed).read_text())["failed"]["line"] == LONG_ROWS + 1


def test_an_import_goes_on_with_the_same_object_and_begins_anew_with_another(server, store, folder):
    address, name = "s3://bucket/long.ndjson", "s3-bucket-long.ndjson"
    arguments = ["kv", "import", "--create", "long", address, "--part-mib", "1", "--connections", "1"]
    noted = folder / f"{name}.load"

    def kill_one():
        command = start(server, *arguments, folder=folder)
        wait_until(noted.exists, "the load is noted")
        command.kill()
        command.wait()
        return json.loads(noted.read_text())["pushed"]["files"]

    # Both have the same length.
    store.put("long.ndjson", text_of(LONG_ROWS, "one", 1_000))
    kill_one()
    said = run(server, *arguments, folder=folder)
    assert "going on with load" in said, said
    assert {value.split()[0] for value in values(server, "long").values()} == {"one"}
    before = kill_one()
    store.put("long.ndjson", text_of(LONG_ROWS, "two", 1_000))
    said = run(server, *arguments, folder=folder)
    assert "its file was another one" in said, said
    assert {value.split()[0] for value in values(server, "long").values()} == {"two"}
    assert len(before) == 1 and before[0]["etag"] and files_of(folder, name) == []


@pytest.mark.parametrize("is_object", [True, False])
def test_all_files_of_a_folder_are_one_load(server, store, folder, is_object):
    files = {f"part-{n}.csv": f"pk,v\np{n},v{n}\n".encode() for n in range(3)}
    (folder / "day").mkdir()
    for name, content in (files | {"_SUCCESS": b"", ".part-0.csv.crc": b"\x00"}).items():
        (folder / "day" / name).write_bytes(content)
        store.put(f"day/{name}", content)
    store.put("day/within/other.csv", b"none of them")
    ns, place = ("of-objects", "s3://bucket/day/") if is_object else ("of-files", "day")
    server.namespace(ns)
    run(server, "load", "push", ns, place, "--wait", folder=folder)
    assert values(server, ns) == {f"p{n}": f"v{n}" for n in range(3)}
    said = run(server, "load", "push", ns, "s3://bucket/nothing/", folder=folder, code=2)
    assert "there are no files" in said, said


def test_several_objects_replace_a_dataset(server, store, folder):
    ns = server.namespace("replaced")
    ns.put("before", "", b"x")
    for name in "ab":
        store.put(f"{name}.ndjson", f'{{"pk":"{name}","v":"{name}"}}\n'.encode())
    files = ["s3://bucket/a.ndjson", "s3://bucket/b.ndjson"]
    options = ["--mode", "replace", "--activate", "--rows-change-max", "9", "--wait"]
    run(server, "load", "push", "replaced", *files, *options, folder=folder)
    assert values(server, "replaced") == {"a": "a", "b": "b"} and versions(ns)


def test_an_export_that_fails_leaves_no_object(server, store, folder):
    ns = server.namespace("broken")
    for number in range(4):
        assert ns.put(f"p{number}", "", b"\xff" * (11 << 20)).status == 201
    command = start(server, "kv", "export", "broken", "-f", "s3://bucket/broken.ndjson", folder=folder)
    wait_until(store.has_uploads, "the upload has begun")
    command.send_signal(signal.SIGINT)
    assert command.wait() in (0, 130)
    if command.returncode == 130:
        assert store.get("broken.ndjson") is None
    assert not store.has_uploads()
    # An object of several parts.
    run(server, "kv", "export", "broken", "-f", "s3://bucket/broken.ndjson", "--overwrite", folder=folder)
    assert len(store.get("broken.ndjson").splitlines()) == 5


@pytest.mark.parametrize("command", [["kv", "import", "refused"], ["load", "push", "refused"], ["kv", "export", "refused", "-f"]])
@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("s3://bucket/absent.ndjson", "there is no such object or no such bucket"),
        ("s3://nowhere/absent.ndjson", "there is no such object or no such bucket"),
        ("s3://bucket", "it names no object"),
        ("ftp://bucket/x.ndjson", "ftp://bucket/x.ndjson"),
    ],
)
def test_a_wrong_address_is_refused_by_name(server, store, folder, command, address, says):
    server.namespace("refused").put("a", "", b"1")
    if command[1] == "export" and "absent" in address:
        address = "s3://nowhere/new.ndjson"
    said = run(server, *command, address, folder=folder, code=1)
    assert says in said and address.split("//")[1] in said, said
    assert list(folder.iterdir()) == []


def test_what_credentials_do_not_permit_is_refused_by_name(server, folder, monkeypatch):
    server.namespace("refused").put("a", "", b"1")
    with served_objects() as store:
        monkeypatch.setenv("AWS_ENDPOINT", store.variables["AWS_ENDPOINT"])
        store.put("x.ndjson", b"")
        assert store.request("POST", "/moto-api/reset-auth", b"0")[0] == 200
        for command in [["kv", "import", "refused"], ["kv", "export", "refused", "--overwrite", "-f"]]:
            said = run(server, *command, "s3://bucket/x.ndjson", folder=folder, code=1)
            assert "the credentials of the environment do not permit it" in said, said


def test_an_address_of_a_file_is_a_file(server, folder):
    server.namespace("filed").put("a", "", b"1")
    run(server, "kv", "export", "filed", "-f", f"file://{folder}/rows.csv", folder=folder)
    assert (folder / "rows.csv").read_text().startswith("pk,")
    run(server, "kv", "import", "filed-too", "--create", f"file://{folder}/rows.csv", folder=folder)
    assert values(server, "filed-too") == {"a": "1"}
