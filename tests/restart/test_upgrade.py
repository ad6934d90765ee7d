"""A server on the data folder that an earlier version has left: nothing is lost, and everything goes on."""

import hashlib

import pytest

from bulk import run
from bulk_loads import Load, activate, lines, rollback, versions
from harness import PROJECT, Namespace
from old_folders import LARGE, LATE_MS, increment, packed_rows, part_rows, small_rows, unpack, version_rows

# The last version before redb 4.6, killed amid writes: redb has to repair each of its files.
ARCHIVE = PROJECT / "tests/data/folder-of-redb-4.4.tar.xz"

pytestmark = pytest.mark.embedded("the folder is of a server with its store in its own process")


class Upgraded:
    """A server of today on such a folder, at the time when it was left."""

    def __init__(self, server):
        self.told = unpack(ARCHIVE, server.folder)
        server.clock.jump(self.told["at"] - server.clock.time())
        self.server = server.start()
        self.root = server.client(token=self.told["root"])

    def namespace(self, name):
        return Namespace(self.root, name)

    def run(self, *arguments):
        return run(self.server, *arguments, "--token", self.told["root"], folder=self.server.folder)


@pytest.fixture
def upgraded(new_server):
    return Upgraded(new_server())


def content(ns):
    return {(row["pk"], row.get("sk", "")): row.get("v") for row in ns.scan_all()}


def as_content(rows):
    return {(row["pk"], row.get("sk", "")): row["v"] for row in rows}


def is_large(answer):
    return hashlib.sha256(answer.body).digest() == hashlib.sha256(LARGE).digest()


def check_rows(upgraded):
    """All that was acknowledged is there, and no more."""
    rows, told = upgraded.namespace("rows"), upgraded.told
    small = small_rows()
    kept = as_content(row for at, row in enumerate(small) if at % 10)
    others = {("typed", "s"): "x", ("lasting", "s"): "x", ("large", "s"): None, ("counted", ""): "42"}
    assert content(rows) == kept | others
    for at, row in enumerate(small):
        answer = rows.get(row["pk"], row["sk"])
        assert (answer.status, answer.body) == (200, row["v"].encode()) if at % 10 else answer.status == 404, answer
    assert rows.get("typed", "s").headers["content-type"] == "text/x"
    assert rows.get("lasting", "s").headers["umbo-expires-at"] == LATE_MS
    assert is_large(rows.get("large", "s"))
    assert rows.get("counted").headers["etag"] == told["counted"]
    assert content(upgraded.namespace("packed")) == as_content(packed_rows())
    for writer, count in enumerate(told["written"]):
        found = [row["v"] for row in upgraded.namespace("written").range_all(f"w{writer}")]
        # The last one was on its way when the server was killed.
        assert found in ([str(n) for n in range(count)], [str(n) for n in range(count + 1)])
    names = {one["name"] for one in upgraded.root.get("/admin/v1/namespaces").json()["namespaces"]}
    assert names == {"rows", "packed", "versioned", "loading", "limited", "written"}


def test_a_folder_of_an_earlier_redb_has_all_that_was_acknowledged(upgraded):
    check_rows(upgraded)
    # As often as the server ends, and however.
    for end in ("stop", "kill"):
        getattr(upgraded.server, end)()
        upgraded.root = upgraded.server.start().client(token=upgraded.told["root"])
        check_rows(upgraded)


def test_writes_versions_and_loads_go_on_in_a_folder_of_an_earlier_redb(upgraded):
    rows, versioned, told = upgraded.namespace("rows"), upgraded.namespace("versioned"), upgraded.told
    again = increment(rows, "once")
    assert (again.body, again.headers.get("umbo-replayed")) == (b"42", "?1"), again
    answer = increment(rows, "anew")
    assert answer.body == b"44" and int(answer.headers["etag"].strip('"')) > int(told["counted"].strip('"'))
    assert rows.put("since", value=b"x").status == 201 and rows.get("since").body == b"x"
    assert {number: one["state"] for number, one in versions(versioned).items()}[2] == "live"
    for number in (2, 1, 2):
        found = content(versioned)
        assert found.pop(("large", ""), "") is None and found == as_content(version_rows(number))
        assert is_large(versioned.get("large"))
        assert (rollback(versioned) if number == 2 else activate(versioned, 2)).status == 200
    loading = upgraded.namespace("loading")
    load = Load(loading.client, "loading", told["load"])
    assert load.put(1, lines(part_rows(1))).status == 201
    load.seal(2)
    load.wait_for("live")
    assert content(loading) == as_content(part_rows(0) + part_rows(1))


def test_tokens_and_quotas_hold_in_a_folder_of_an_earlier_redb(upgraded):
    reader = Namespace(upgraded.server.client(token=upgraded.told["reader"]), "rows")
    assert reader.get("typed", "s").status == 200
    reader.put("typed", "s", b"y").problem(403, "forbidden")
    reader.client.get("/v1/ns/packed/kv/p1").problem(403, "forbidden")
    Namespace(upgraded.server.client(), "rows").get("typed", "s").problem(401, "unauthenticated")
    upgraded.server.clock.stop()
    limited = upgraded.namespace("limited")
    assert [limited.get("row").status for _ in range(3)] == [200] * 3
    assert "few" in limited.get("row").problem(429, "quota-exceeded")["detail"]
    upgraded.server.clock.go()


def test_a_folder_of_an_earlier_redb_is_backed_up(upgraded, folder):
    upgraded.run("backup", "--to", str(folder / "backup"))
    run(upgraded.server, "backup", "verify", "--from", str(folder / "backup"), folder=folder)
    upgraded.server.stop()
    folder_of_it = ["--data", str(upgraded.server.data), "--dry-run", "-o", "table"]
    said = run(upgraded.server, "shard", "repair", *folder_of_it, folder=folder)
    assert "0 rows in the wrong shard" in said, said
