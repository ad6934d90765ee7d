"""Policies on real servers: at once in effect, kept across kill and restart, reloaded from the file."""

import json
import signal
import subprocess
import threading

import pytest

from harness import binary, wait_until

QUOTAS = "/admin/v1/quotas"


def policy(name, rate, **more):
    return {"name": name, "per": ["caller"], "unit": "requests", "rate": rate} | more


def entry(name, rate):
    return f'[[policy]]\nname = "{name}"\nper = ["caller"]\nunit = "requests"\nrate = {rate}\n'


def put(client, body, **headers):
    return client.put(f"{QUOTAS}/{body['name']}", json.dumps(body), **headers)


def rates(client):
    """Name, source and rate of each policy but the built-in one."""
    policies = client.get(QUOTAS).json()["policies"]
    shown = [(one["policy"]["name"], one["source"], one["policy"]["rate"]) for one in policies]
    return [one for one in shown if one[1] != "built-in"]


def test_a_policy_is_in_effect_at_once_and_gone_at_once(new_server):
    server = new_server().start()
    ns, admin = server.namespace(), server.admin()
    assert ns.put("a", value=b"x").status == 201
    assert put(admin, policy("few", 1, burst=2)).status == 201
    statuses = [ns.get("a").status for _ in range(8)]
    assert 429 in statuses and statuses[:2] == [200, 200], statuses
    changed = put(admin, policy("few", 100_000))
    assert (changed.status, changed.json()["before"]["rate"]) == (200, 1)
    # Nothing that was owed is forgiven, but what is owed is a request or two of so many a second:
    # it is paid by the next refill.
    is_open = lambda: {ns.get("a").status for _ in range(5)} == {200}
    wait_until(is_open, "the new rate lets requests in", 5)
    assert {ns.get("a").status for _ in range(50)} == {200}
    assert put(admin, policy("few", 1, mode="shadow")).status == 200
    assert {ns.get("a").status for _ in range(20)} == {200}
    counters = admin.get(f"{QUOTAS}/few").json()["counters"]
    assert counters["shadow_rejected"] > 0, counters
    assert admin.delete(f"{QUOTAS}/few").status == 200
    assert {ns.get("a").status for _ in range(50)} == {200}


def test_stored_policies_outlive_kill_and_restart(new_server):
    server = new_server().start()
    tags = [put(server.client(), policy(f"p{n}", n)).headers["etag"] for n in range(1, 6)]
    assert server.client().delete(f"{QUOTAS}/p3", if_match=tags[2]).status == 200
    kept = rates(server.client())
    assert [name for name, *_ in kept] == ["p1", "p2", "p4", "p5"]
    server.kill()
    server.start()
    assert rates(server.client()) == kept
    assert server.client().get(f"{QUOTAS}/p4").headers["etag"] == tags[3]
    put(server.client(), policy("p4", 40), if_match=tags[2]).problem(412, "precondition-failed")
    assert put(server.client(), policy("p4", 40), if_match=tags[3]).status == 200
    server.stop()
    server.start()
    assert rates(server.client())[2] == ("p4", "stored", 40)


@pytest.fixture
def filed(new_server):
    """A server with a policy file, and the path of that file."""
    server = new_server({"quota": {"policy_file": "quotas.toml"}})
    server.folder.mkdir(exist_ok=True)
    path = server.folder / "quotas.toml"
    path.write_text(entry("ours", 10))
    return server.start(), path


def test_the_file_is_read_again_at_a_hangup(filed):
    server, path = filed
    client = server.client()
    assert rates(client) == [("ours", "file", 10)]
    put(client, policy("ours", 5)).problem(409, "quota-of-file")
    client.delete(f"{QUOTAS}/ours").problem(409, "quota-of-file")
    assert put(client, policy("theirs", 7)).status == 201

    def reload(text):
        seen = len(server.log)
        path.write_text(text) if text is not None else path.unlink()
        server.process.send_signal(signal.SIGHUP)
        said = lambda: [line for line in server.log[seen:] if "the policy file" in line]
        return json.loads(wait_until(said, "the reload is logged")[-1])

    assert reload(entry("ours", 20) + entry("more", 1))["level"] == "INFO"
    good = [("more", "file", 1), ("ours", "file", 20), ("theirs", "stored", 7)]
    assert rates(client) == good
    for bad, expected in [
        (entry("ours", 0), "line 5: 'ours': rate: a rate of 0"),
        (entry("ours", -1), "line 5: 'ours': rate"),
        (entry("ours", 1) + entry("ours", 2), "two policies are named 'ours'"),
        (entry("ours", 1).replace("requests", "joules"), "line 4: 'ours': unit"),
        (entry("ours", 1).replace("unit", "units"), "did you mean `unit`?"),
        (entry("ours", "99999999999999999999"), "line 5"),
        ("[[policy", "line 1"),
        ("\0\xff", "line 1"),
        (None, "No such file"),
    ]:
        said = reload(bad)
        assert said["level"] == "ERROR" and expected in said["error"], (bad, said)
        assert said["message"] == "the policy file stays as it was", said
        assert rates(client) == good, bad
    assert reload(entry("theirs", 99))["level"] == "INFO"
    assert rates(client) == [("theirs", "file", 99)]
    assert reload("")["level"] == "INFO"
    assert rates(client) == [("theirs", "stored", 7)], "what the file covered counts again"


def test_the_file_is_read_again_when_it_changes(filed):
    server, path = filed
    path.write_text(entry("ours", 11))
    client = server.client()
    wait_until(lambda: rates(client) == [("ours", "file", 11)], "the change is seen", 30)


def test_a_file_that_cannot_be_used_stops_the_start(new_server, folder):
    server = new_server({"quota": {"policy_file": "quotas.toml"}})
    server.folder.mkdir(exist_ok=True)
    (server.folder / "quotas.toml").write_text(entry("a", 1) + entry("b", 0))
    server.launch()
    assert server.wait() == 1
    expected = "policy file quotas.toml: line 10: 'b': rate: a rate of 0 would reject for ever"
    assert expected in server.log_text()
    assert not server.data.exists(), "nothing is touched before the file is known to be good"
    check = [binary(), "config", "check", "umbo.toml"]
    checked = subprocess.run(check, cwd=server.folder, capture_output=True, text=True)
    assert checked.returncode == 1 and expected in checked.stderr, checked
    (server.folder / "quotas.toml").write_text(entry("a", 1))
    checked = subprocess.run(check, cwd=server.folder, capture_output=True, text=True)
    assert checked.returncode == 0 and "policies: 1" in checked.stdout, checked


def test_the_flag_names_a_file_and_the_environment_sets_prices(new_server):
    server = new_server(
        arguments=["--quota-file", "flagged.toml"],
        environment={"UMBO__COST__WRITE_BASE": "0.5", "UMBO__COST__LATENCY_MS": "0"},
    )
    server.folder.mkdir(exist_ok=True)
    (server.folder / "flagged.toml").write_text(entry("flagged", 3))
    server.start()
    assert rates(server.client()) == [("flagged", "file", 3)]
    shown = server.admin().get("/admin/v1/config").body.decode()
    assert 'policy_file = "flagged.toml"' in shown and "# --quota-file" in shown
    ns = server.namespace()
    charged = float(ns.put("a", value=b"x").headers["umbo-ru"])
    assert 0.55 < charged < 0.56, "half a unit, a row, and a few bytes"


def test_changes_while_requests_come_reject_nothing_and_drop_nothing(new_server):
    server = new_server().start()
    ns, admin = server.namespace(), server.admin()
    ns.put("a", value=b"x")
    statuses, is_over = set(), threading.Event()

    def read():
        own = server.namespace()
        while not is_over.is_set():
            statuses.add(own.get("a").status)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(60):
        body = policy(f"p{n % 3}", 1_000_000 + n, mode=["enforce", "shadow"][n % 2])
        assert put(admin, body).status in (200, 201)
        if n % 5 == 4:
            assert admin.delete(f"{QUOTAS}/p{n % 3}").status == 200
    is_over.set()
    for reader in readers:
        reader.join()
    assert statuses == {200}
