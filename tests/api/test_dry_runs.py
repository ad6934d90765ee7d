"""Dry runs of what destroys: each says what it would do, and changes nothing; and touches by the command line."""

import json
import os
import subprocess

import pytest

from harness import binary

OK, NOT_FOUND, CONDITION_FAILED = 0, 3, 4

class Shell:
    """Runs `umbo` against a server, in a folder."""

    def __init__(self, server, folder, token=None):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}
        tokens = {"UMBO_TOKEN": token} if token else {}
        self.environment = clean | {"UMBO_SERVER": f"http://127.0.0.1:{server.port}"} | tokens
        self.folder = folder

    def __call__(self, *arguments, code=OK):
        done = subprocess.run([binary(), *arguments], env=self.environment, cwd=self.folder,
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        assert done.returncode == code, (arguments, done)
        return done.stdout


@pytest.fixture
def shell(server, tmp_path):
    return Shell(server, tmp_path)


def test_a_row_is_removed_by_no_dry_run(ns, shell):
    ns.put("p", "s", b"value")
    counted = json.loads(shell("kv", "rm", ns.name, "p", "s", "--dry-run", "-o", "json"))
    assert counted == {"rows": 1, "bytes": 6, "dry_run": True}
    assert "would-remove  1" in shell("kv", "rm", ns.name, "p", "s", "--dry-run", "--if-match", "*")
    assert json.loads(shell("kv", "rm", ns.name, "q", "--dry-run", "-o", "json"))["rows"] == 0
    assert ns.get("p", "s").body == b"value"


def test_a_key_is_blocked_by_no_dry_run(ns, shell):
    ns.put("p", value=b"v")
    listed = json.loads(
        shell("hot", "block", ns.name, "p", "--reason", "tried", "--ttl", "5m", "--dry-run", "-o", "json")
    )
    assert listed["standing"] == "blocked" and listed["reason"] == "tried", listed
    assert ns.get("p").body == b"v"
    path = f"/admin/v1/hot/blocked/ns/{ns.name}/kv/p"
    assert ns.client.put(path + "?dry_run=true").status == 200
    ns.client.delete(path).problem(404, "hot-key-not-listed")
    ns.client.delete(path + "?dry_run=true").problem(400, "invalid-query")
    by_id = f"/admin/v1/hot/blocked/id/{listed['id']}"
    assert ns.client.put(by_id + "?dry_run=true").json()["hash"] == listed["hash"]
    ns.client.put(by_id + "?enc=b64u").problem(400, "invalid-query")
    assert ns.get("p").body == b"v"


def test_a_token_is_revoked_by_no_dry_run(new_server, tmp_path):
    server = new_server()
    server.start()
    admin = server.client().post("/admin/v1/tokens", {"name": "root", "grants": ["*:*"]}).json()
    client = server.client(token=admin["token"])
    other = client.post("/admin/v1/tokens", {"name": "other", "grants": ["read:*"]}).json()
    shown = client.delete(f"/admin/v1/tokens/{other['id']}?dry_run=true")
    assert (shown.status, shown.json()["name"]) == (200, "other")
    shell = Shell(server, tmp_path, admin["token"])
    assert "other" in shell("token", "revoke", other["id"], "--dry-run")
    assert len(client.get("/admin/v1/tokens").json()["tokens"]) == 2
    shell("token", "revoke", "absent", "--dry-run", code=NOT_FOUND)
    assert client.delete(f"/admin/v1/tokens/{other['id']}").status == 204


def test_a_touch_by_the_command_line(ns, shell):
    tag = ns.put("p", "s", b"v").headers["etag"]
    version = json.loads(shell("kv", "touch", ns.name, "p", "s", "--ttl", "5m", "-o", "json"))["version"]
    row = ns.get("p", "s")
    assert row.headers["etag"] == f'"{version}"' != tag
    assert row.body == b"v" and "umbo-expires-at" in row.headers
    shell("kv", "touch", ns.name, "p", "s", "--ttl", "5m", "--if-match", tag.strip('"'), code=CONDITION_FAILED)
    shell("kv", "touch", ns.name, "absent", "--ttl", "5m", code=NOT_FOUND)
