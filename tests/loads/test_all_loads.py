"""The loads of all namespaces in one list: by the route of operators and at the command line."""

import json
import subprocess

from bulk import environment, step_until
from bulk_loads import Load, lines, load_rows
from harness import Client, binary, wait_until


def list_at_command_line(server, *arguments, code=0):
    command = [binary(), "load", "ls", *arguments]
    done = subprocess.run(command, env=environment(server), capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done
    return done


def ids(done):
    return [json.loads(line)["id"] for line in done.stdout.splitlines()]


def listed(client):
    answer = client.get("/admin/v1/loads")
    assert answer.status == 200, answer
    return answer.json()


def rows(count):
    return [{"pk": f"p{n}", "v": str(n)} for n in range(count)]


def test_loads_of_all_namespaces_are_listed_with_their_rows_and_what_they_wait_for(new_server):
    server = new_server().start()
    one, _ = server.namespace("one"), server.namespace("other")
    assert listed(one.client) == {"loads": []}
    live, _ = load_rows(one.client, "one", rows(3), rows(4))
    failed = Load.create(one.client, "one", expected_rows=9)
    assert failed.put(0, lines(rows(2))).status == 201
    failed.seal(1)
    failed.wait_for("failed")
    waiting = Load.create(one.client, "other")
    assert waiting.put(0, lines(rows(6_000))).status == 201
    slow = {"name": "slow", "match": {"operations": ["batch-write"]}, "per": ["caller"], "unit": "writes"}
    made = one.client.put("/admin/v1/quotas/slow", json.dumps(slow | {"rate": 100, "burst": 500}))
    assert made.status == 201, made
    server.clock.stop()
    waiting.seal(1)
    step_until(server.clock, lambda: "slow" in waiting.info().get("reason", ""), "it waits for its quota")

    found = listed(one.client)
    assert "left_out" not in found
    assert [load["id"] for load in found["loads"]] == [live.id, failed.id, waiting.id], "the oldest first"
    assert [load["namespace"] for load in found["loads"]] == ["one", "one", "other"]
    first, second, third = found["loads"]
    assert (first["state"], first["rows_total"], first["rows_applied"], first["parts"]) == ("live", 7, 7, [])
    assert second["state"] == "failed" and "2" in second["reason"] and second["rows_applied"] == 0
    assert third["state"] == "building" and "slow" in third["reason"], third
    assert third["rows_total"] == 6_000 > third["rows_applied"]

    table = list_at_command_line(server, "-o", "table").stdout.splitlines()
    assert table[0].split()[:6] == ["NAMESPACE", "ID", "STATE", "MODE", "PARTS", "ROWS"]
    heads = [["one", live.id, "live"], ["one", failed.id, "failed"], ["other", waiting.id, "building"]]
    assert [line.split()[:3] for line in table[1:]] == heads
    assert "6000" in table[3] and "slow" in table[3]
    assert ids(list_at_command_line(server, "-o", "ndjson")) == [live.id, failed.id, waiting.id]
    assert ids(list_at_command_line(server, "one", "-o", "ndjson")) == [live.id, failed.id]


def test_the_list_has_room_for_those_that_have_not_ended_and_for_the_latest(new_server):
    server = new_server().start()
    client, made = server.client(), []
    for at in range(13):
        server.namespace(f"n{at:02}")
        # Eight loads and a dozen of imports may be open.
        made += [Load.create(client, f"n{at:02}", **{"import": n >= 8}).id for n in range(20)]
    ended = Load(client, "n00", made[0])
    assert ended.post("abort").status == 200
    found = listed(client)
    assert len(found["loads"]) == 256 and found["left_out"] == len(made) - 256
    assert ended.id not in [load["id"] for load in found["loads"]]
    done = list_at_command_line(server, "-o", "ndjson")
    assert len(ids(done)) == 256 and "4 further loads" in done.stderr, done.stderr


def test_who_may_not_see_all_namespaces_is_told_which_permission_is_missing(new_server):
    server = new_server().start()
    client = server.client()

    def token(name, *grants):
        answer = client.post("/admin/v1/tokens", {"name": name, "grants": list(grants)})
        assert answer.status == 201, answer
        return answer.json()["token"]

    client.token = token("root", "*:*")
    assert client.put("/admin/v1/namespaces/shop", b"{}").status == 201
    load = Load.create(client, "shop")
    loader = token("loader", "*:shop")
    problem = Client(server.port, token=loader).get("/admin/v1/loads").problem(403, "forbidden")
    assert "'loader'" in problem["detail"] and "'observe'" in problem["detail"] and "'*'" in problem["detail"]
    refused = list_at_command_line(server, "--token", loader, code=8).stderr
    assert "'loader'" in refused and "'observe'" in refused, refused
    assert ids(list_at_command_line(server, "--token", loader, "shop", "-o", "ndjson")) == [load.id]
    watcher = token("watcher", "observe:*")
    assert [one["id"] for one in listed(Client(server.port, token=watcher))["loads"]] == [load.id]


def by_state(server):
    lines = server.admin().get("/metrics").body.decode().splitlines()
    found = (line.removeprefix('umbo_loads{state="').split('"} ') for line in lines if line.startswith("umbo_loads{"))
    return {state: int(count) for state, count in found}


def test_loads_are_counted_by_state_and_those_that_are_stuck(new_server):
    server = new_server().start()
    client = server.namespace("demo").client
    assert len(by_state(server)) == 11 and set(by_state(server).values()) == {0}, "each state has its series"
    load_rows(client, "demo", rows(3))
    Load.create(client, "demo")
    load = Load.create(client, "demo")
    assert load.put(0, lines(rows(50))).status == 201
    never = {"name": "never", "match": {"operations": ["batch-write"]}, "per": ["caller"], "unit": "writes"}
    assert client.put("/admin/v1/quotas/never", json.dumps(never | {"rate": 0.001, "burst": 1})).status == 201
    server.clock.stop()
    load.seal(1)
    step_until(server.clock, lambda: "never" in load.info().get("reason", ""), "it waits for its quota")
    assert {state: count for state, count in by_state(server).items() if count} == {"created": 1, "building": 1, "live": 1}
    server.clock.advance(300)
    assert server.metric("umbo_loads_stuck") == 0, "it may be a short wait"
    step_until(server.clock, lambda: server.metric("umbo_loads_stuck") == 1, "it is stuck", step=60)
    assert client.delete("/admin/v1/quotas/never").status == 200
    server.clock.go()
    load.wait_for("live")
    server.clock.advance(180)
    wait_until(lambda: server.metric("umbo_loads_stuck") == 0, "it is stuck no more")
