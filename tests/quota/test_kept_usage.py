"""Usage outlives the server that has counted it: all of it after a stop, all but a minute after a kill."""

import csv
import io

from bulk import step_until
from harness import Namespace, wait_until
from quotas import micros, policy, put_policy, total, until_rejected, usage
from test_quota_commands import Shell

STEP_MS = 600_000


def kept(client, **query):
    answer = client.request("GET", "/admin/v1/usage?" + "&".join(f"{name}={value}" for name, value in query.items()))
    assert answer.status == 200, answer
    return answer.json()


def counted(report):
    """What a report of either kind counts in all."""
    fields = ("requests", "rejected", "rows", "read_bytes", "write_bytes")
    sums = {field: total(report["rows"], field) for field in fields}
    return sums | {"ru": sum(micros(row["ru"]) for row in report["rows"])}


def work(ns, rounds):
    for number in range(rounds):
        assert ns.put(f"p{number}", "s", b"v" * 100).status in (201, 204)
        assert ns.get(f"p{number}", "s").status == 200


def until_counted(server, ns, expected):
    """Waits until the kept usage is as expected: a second has to end for the last requests."""
    found = lambda: counted(kept(server.client(), by="operation", namespace=ns))
    wait_until(lambda: found() == expected, "the last second is counted")


def test_a_stop_loses_nothing(new_server):
    server, lives = new_server().start(), []
    put_policy(server.client(), policy("few", only=3, match={"namespace": "kept", "operations": ["range"]}))
    for rounds in (7, 4):
        ns = server.namespace("kept")
        work(ns, rounds)
        until_rejected(lambda: ns.range("p1"), 5)
        lives.append(counted(usage(server.client(), "kept")))
        assert lives[-1]["requests"] >= 2 * rounds and lives[-1]["rejected"] == 1
        both = {field: sum(life[field] for life in lives) for field in lives[0]}
        until_counted(server, "kept", both)
        server.stop()
        server.start()
        until_counted(server, "kept", both)
    report = kept(server.client(), by="operation,month", last_seconds=3600)
    assert {row["operation"] for row in report["rows"]} == {"put", "get", "range"}
    assert report["from_ms"] % STEP_MS == 0
    assert report["until_ms"] - 3_600_000 - STEP_MS <= report["from_ms"] <= report["until_ms"] - 3_600_000
    assert all(0 < row["ru_second_max"] <= row["ru_ten_seconds_max"] <= row["ru"] for row in report["rows"])
    server.stop()


def test_a_kill_loses_a_minute_at_most(new_server):
    server = new_server().start()
    ns = server.namespace("kept")
    work(ns, 20)
    safe = counted(usage(server.client(), "kept"))
    until_counted(server, "kept", safe)
    # Others may commit at the home too, so that only the time says that the row is due.
    steps, before = iter(range(15)), server.metric("umbo_shard_commits_total")
    is_over = lambda: next(steps, None) is None and server.metric("umbo_shard_commits_total") > before
    step_until(server.clock, is_over, "a minute is over, and is written", step=5)
    work(ns, 5)
    most = counted(usage(server.client(), "kept"))
    server.kill()
    server.start()
    found = counted(kept(server.client(), namespace="kept"))
    assert all(safe[field] <= found[field] <= most[field] for field in safe), (safe, found, most)
    # The next life overwrites nothing of the last one.
    work(Namespace(server.client(), "kept"), 3)
    life = counted(usage(server.client(), "kept"))
    until_counted(server, "kept", {field: found[field] + life[field] for field in found})
    server.stop()


def test_a_policy_is_simulated_on_usage_of_servers_that_are_gone(new_server, folder):
    server = new_server().start()
    work(server.namespace("kept"), 40)
    until_counted(server, "kept", counted(usage(server.client(), "kept")))
    server.stop()
    server.start()
    shell = Shell(server, folder)
    flags = ("--unit", "requests", "--rate", "0.05", "--burst", "10", "--per", "caller", "--match", "namespace=kept")
    assert shell.json("quota", "simulate", "few", *flags)["requests"] == 0, "memory is that of this life"
    found = shell.json("quota", "simulate", "few", *flags, "--last", "30d")
    (row,) = found["rows"]
    assert (row["label"], row["requests"], found["requests"]) == ("caller=anonymous", 80, 80), found
    # 30 are refilled in a step at most, and the burst is 10; the writes may have been in two steps.
    assert 8 <= row["rejected"] <= 40 and found["range"]["lowest"] == row["rejected_amount"], found
    assert row["range"]["lowest"] <= row["range"]["highest"] <= 80 and row["range"]["worst_at_ms"] % STEP_MS == 0
    assert found["notes"], found
    told = shell("quota", "simulate", "few", *flags, "--last", "2h")
    assert "rejected amount: " in told.stderr and "most in the ten minutes from" in told.stderr, told
    shell("quota", "set", "few", *flags, "--mode", "shadow")
    assert shell.json("quota", "simulate", "few", "--last", "30d")["rows"] == found["rows"]
    for per in ("shard", "user", "org"):
        body = {"policy": policy("by", only=3, per=[per]), "last_seconds": 3_601}
        refused = server.client().post("/admin/v1/quotas/simulate", body).problem(400, "quota-invalid")
        assert f"kept usage has no {per}" in refused["detail"], refused
    server.stop()


def test_usage_ends_with_35_days(new_server):
    server = new_server().start()
    work(server.namespace("kept"), 2)
    server.stop()
    server.clock.advance(35 * 86_400 - 3_600)
    server.start()
    assert kept(server.client(), last_seconds=86_400)["rows"] == []
    assert kept(server.client(), last_seconds=35 * 86_400)["rows"][0]["requests"] == 4
    server.stop()
    server.clock.advance(3_600)
    server.start()
    assert kept(server.client(), last_seconds=35 * 86_400)["rows"] == []
    server.stop()


def test_a_caller_sees_its_own_and_what_it_may_observe(closed):
    closed.server.clock.go()
    for name in ("one", "two"):
        closed.namespace(name)
    writer, other = closed.caller("writer", "read,write:*"), closed.caller("other", "read,write:*")
    observer = closed.caller("observer", "observe:one")
    for client in (writer, other):
        for name in ("one", "two"):
            work(Namespace(client, name), 1)
    everything = [(name, caller) for name in ("one", "two") for caller in ("other", "writer")]

    def seen(client, **query):
        rows = kept(client, by="namespace,caller", **query)["rows"]
        # Seconds are counted one by one: a row may lack the last requests for a while.
        return sorted((row["namespace"], row["caller"]) for row in rows if row["requests"] == 2)

    wait_until(lambda: seen(closed.root) == everything, "all is counted")
    assert seen(writer) == [("one", "writer"), ("two", "writer")]
    assert seen(observer) == everything[:2]
    assert seen(closed.root, namespace="two") == everything[2:]
    assert seen(closed.root, caller="other") == [("one", "other"), ("two", "other")]
    assert seen(writer, caller="other") == []
    limited = kept(closed.root, by="caller,namespace,operation", limit=3)
    assert (len(limited["rows"]), limited["total"]) == (3, 8)
    for wrong in ("by=shard", "by=", "by=day,caller,month", "last_seconds=0", "last_seconds=3024001", "limit=0", "limit=65537", "caller=", "since=1"):
        assert closed.root.request("GET", f"/admin/v1/usage?{wrong}").status == 400, wrong
    assert closed.server.client().get("/admin/v1/usage").status == 401


def test_the_command_shows_tables_and_csv(new_server, folder):
    server = new_server().start()
    shell = Shell(server, folder)
    work(server.namespace("kept"), 3)
    until_counted(server, "kept", counted(usage(server.client(), "kept")))
    table = shell("quota", "usage", "--last", "7d", "--by", "caller,operation")
    assert table.stdout.splitlines()[0].split()[:4] == ["CALLER", "OPERATION", "REQUESTS", "REJECTED"]
    assert {tuple(line.split()[:3]) for line in table.stdout.splitlines()[1:]} == {
        ("anonymous", "put", "3"),
        ("anonymous", "get", "3"),
    }
    assert "through all servers" in table.stderr
    text = shell("quota", "usage", "kept", "--last", "35d", "--by", "month,caller", "--csv", "--price", "0.25").stdout
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["caller"] == "anonymous" and row["requests"] == "6" and len(row["period"]) == len("2026-11")
    assert row["partial"] == "true", "the month has not ended"
    assert abs(float(row["cost"]) - float(row["ru"]) / 4_000_000) < 1e-6
    assert shell.json("quota", "usage", "--last", "1d")["rows"][0]["requests"] == 6
    for wrong in (["--csv"], ["--last", "1d", "--csv", "--limit", "5"], ["kept", "--by", "caller"], ["--last", "36d"], ["--last", "1d", "--price=-1"], ["--last", "1d", "--price", "1", "-o", "json"]):
        shell("quota", "usage", *wrong, code=2)
    server.stop()
