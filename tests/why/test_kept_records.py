"""Records of requests outlive the server that has made them: all after a stop, all but ten seconds after a kill."""

import subprocess

from bulk import step_until
from harness import binary, quote


def refused(client, request_id, namespace="nowhere"):
    answer = client.get(f"/v1/ns/{namespace}/kv/a", Umbo_Request_Id=request_id)
    assert answer.status == 404, answer


def found(client, request_id):
    answer = client.get(f"/admin/v1/why/{quote(request_id)}")
    return answer.json() if answer.status == 200 else None


def counted(client, caller="anonymous"):
    """The refusals of a caller by code, and how many of them other processes wrote down."""
    answer = client.get(f"/admin/v1/why?caller={caller}&last=1h").json()
    assert "notes" not in answer, answer
    return {reason["code"]: reason["count"] for reason in answer["reasons"]}, answer["kept"]


def test_a_stop_keeps_all_of_them(new_server):
    server = new_server().start()
    for life in range(2):
        for number in range(3):
            refused(server.client(), f"life-{life}-{number}")
        server.client().get("/v2", Umbo_Request_Id=f"route-{life}")
        server.stop()
        server.start()
    root = server.client()
    for life in range(2):
        for number in range(3):
            record = found(root, f"life-{life}-{number}")
            assert (record["code"], record["caller"], record["status"]) == ("namespace-not-found", "anonymous", 404), record
            assert record["kept"]["left_out"] == 0 and record["kept"]["server"] in record["text"], record
            assert record["kept"]["at_ms"] >= record["at_ms"], record
    assert found(root, "route-0")["kept"] != found(root, "route-1")["kept"]
    assert counted(root) == ({"namespace-not-found": 6}, 6)
    refused(root, "now")
    assert "kept" not in found(root, "now"), "memory comes first"
    assert counted(root) == ({"namespace-not-found": 7}, 6)
    missing = root.get("/admin/v1/why/nothing").problem(404, "record-not-found")
    assert "rows of the last day were read" in missing["detail"], missing

    def run(*arguments):
        command = [binary(), "--server", f"127.0.0.1:{server.port}", "why", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    told = run("life-0-1")
    assert told.returncode == 0 and found(root, "life-0-1")["kept"]["server"] in told.stdout, told
    assert "6 of them were by other servers" in run("--caller", "anonymous").stderr
    # Answers are in memory only.
    server.namespace("there")
    assert root.get("/v1/ns/there/kv/absent", Umbo_Request_Id="answer").status == 404
    assert found(root, "answer")["code"] == "key-not-found"
    server.stop()
    server.clock.advance(86_400)
    server.start()
    assert found(server.client(), "answer") is None
    assert found(server.client(), "life-0-1") is None, "rows last for a day"
    server.stop()


def test_a_kill_loses_ten_seconds_at_most(new_server):
    server = new_server().start()
    refused(server.client(), "safe")
    steps, before = iter(range(5)), server.metric("umbo_shard_commits_total")
    is_over = lambda: next(steps, None) is None and server.metric("umbo_shard_commits_total") > before
    step_until(server.clock, is_over, "ten seconds are over, and are written", step=5)
    refused(server.client(), "late")
    server.kill()
    server.start()
    root = server.client()
    assert found(root, "safe")["kept"]["left_out"] == 0
    counts, kept = counted(root)
    late = found(root, "late") is not None
    assert counts == {"namespace-not-found": 1 + late} and kept == 1 + late
    server.stop()


def test_a_flood_leaves_a_share_of_each_caller(new_server):
    server = new_server().start()
    token = server.client().post("/admin/v1/tokens", {"name": "root", "grants": ["*:*"]}).json()["token"]
    root = server.client(token=token)
    make = lambda name: root.post("/admin/v1/tokens", {"name": name, "grants": ["read:demo"]}).json()["token"]
    tokens = [make(name) for name in ("flood", "quiet")]
    flood, quiet = (server.client(token=own) for own in tokens)
    # All of it is in one row.
    server.clock.stop()
    for number in range(1_500):
        assert flood.put("/v1/ns/demo/kv/a", Umbo_Request_Id=f"flood-{number}").status == 403
    assert quiet.put("/v1/ns/demo/kv/a", Umbo_Request_Id="quiet-1").status == 403
    server.clock.go()
    server.stop()
    server.start()
    root, flood, quiet = (server.client(token=own) for own in (token, *tokens))
    record = found(root, "quiet-1")
    assert record["caller"] == "quiet" and record["kept"]["left_out"] >= 477, record
    assert found(root, "flood-1499") and not found(root, "flood-0")
    assert counted(root, "flood") == ({"forbidden": 1_500}, 1_500)
    # Each sees its own.
    assert found(quiet, "quiet-1") and counted(quiet, "quiet") == ({"forbidden": 1}, 1)
    for other in ("flood-1499", "nothing"):
        quiet.get(f"/admin/v1/why/{other}").problem(403, "forbidden")
    assert found(flood, "flood-1499")["caller"] == "flood"
    server.stop()
