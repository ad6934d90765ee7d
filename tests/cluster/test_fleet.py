"""Through any dispatcher operators see all of them."""

import json
import re
import signal
import subprocess

import pytest

from bulk import step_until
from clock import Clock
from deadline import Waiting, standing_still
from processes import binary, wait_until

# Time that all have to answer a question.
ANSWER_SECONDS = 3
# For as long a dispatcher that is gone without a word is taken for live.
PRESENCE_SECONDS = 20


def fleet_of(dispatcher, count):
    """The fleet as a dispatcher lists it, once so many are live."""

    def listed():
        found = dispatcher.admin().get("/admin/v1/fleet").json()["processes"]
        return found if sum(one["state"] == "live" for one in found) == count else None

    return wait_until(listed, f"{count} dispatchers are live")


def ask(dispatcher, route):
    answer = dispatcher.admin().get(f"/admin/v1/fleet/{route}")
    assert answer.status == 200, answer
    return answer.json()["processes"]


def test_each_lists_all_and_itself_first(pair):
    names = set()
    for dispatcher in pair.dispatchers:
        processes = fleet_of(dispatcher, 2)
        assert [one["is_self"] for one in processes] == [True, False]
        assert processes[0]["about"]["admin_url"] == f"http://127.0.0.1:{dispatcher.admin_port}"
        assert len({one["id"] for one in processes}) == 2
        names.add(processes[0]["about"]["name"])
        assert processes[0]["about"]["name"].endswith(f"/{dispatcher.process.pid}")
    assert len(names) == 2


def test_a_request_is_explained_by_any(pair):
    first, second = pair.dispatchers
    first.namespace("explained")
    wait_until(lambda: second.client().get("/v1/ns/explained/kv/a").status == 404, "the namespace is seen")
    fleet_of(first, 2)
    refused = second.client().get("/v1/ns/explained/range/a?limit=none")
    request_id = refused.json()["request_id"]
    answers = ask(first, f"why/{request_id}")
    assert [one["status"] for one in answers] == [404, 200]
    assert answers[1]["answer"]["id"] == request_id and not answers[1]["process"]["is_self"]
    assert answers[0]["answer"]["type"].endswith("/record-not-found")
    server = f"http://127.0.0.1:{first.port}"
    said = subprocess.run([binary(), "why", request_id, "--server", server], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0 and "400" in said.stdout, said
    listed = subprocess.run([binary(), "fleet", "--server", server], capture_output=True, text=True, timeout=60)
    assert listed.stdout.count("live") == 2, listed


def test_series_of_all_come_together(pair):
    first, _ = pair.dispatchers
    fleet_of(first, 2)
    answers = wait_until(
        lambda: [one for one in ask(first, "history?range=5m&series=memory_bytes") if one["answer"]["series"]][1:]
        and ask(first, "history?range=5m&series=memory_bytes"),
        "both have a history",
    )
    for answer in answers:
        (series,) = answer["answer"]["series"]
        assert series["name"] == "memory_bytes" and any(series["values"])
    # What a dispatcher refuses is told as its refusal.
    refused = ask(first, "history?range=eternity")
    assert [one["status"] for one in refused] == [400, 400]


def test_a_backup_that_one_has_reported_is_known_to_all(pair):
    first, second = pair.dispatchers
    report = {"location": "/backups/monday", "rows": 7, "bytes": 99, "seconds": 3}
    answer = first.client().put("/admin/v1/backups/00000000000000aa", json.dumps(report))
    assert answer.status == 200 and answer.json() == answer.json() | report, answer
    for dispatcher in (first, second):
        wait_until(lambda: listed(dispatcher) == [answer.json()], "the home has told it")  # noqa: B023
    # Said again by another one, it is one backup; eight are kept.
    assert second.client().put("/admin/v1/backups/00000000000000aa", json.dumps(report)).status == 200
    for number in range(9):
        assert second.client().put(f"/admin/v1/backups/{number:016x}", json.dumps(report)).status == 200
    newest = [f"{number:016x}" for number in reversed(range(1, 9))]
    wait_until(lambda: [one["backup"] for one in listed(first)] == newest, "eight are kept")


@pytest.mark.parametrize(
    "number, report, status",
    [
        ("00000000000000aa", {"location": "", "rows": 0, "bytes": 0, "seconds": 0}, 400),
        ("00000000000000aa", {"location": "x" * 1025, "rows": 0, "bytes": 0, "seconds": 0}, 400),
        ("00000000000000aa", {"location": "\x1b[31mx", "rows": 0, "bytes": 0, "seconds": 0}, 400),
        ("00000000000000aa", {"location": "x", "rows": -1, "bytes": 0, "seconds": 0}, 400),
        ("00000000000000aa", {"location": "x"}, 400),
        ("monday", {"location": "x", "rows": 0, "bytes": 0, "seconds": 0}, 404),
    ],
)
def test_a_report_of_a_backup_that_says_nothing_is_refused(pair, number, report, status):
    answer = pair.dispatchers[0].client().put(f"/admin/v1/backups/{number}", json.dumps(report))
    assert answer.status == status, answer


def listed(dispatcher):
    return dispatcher.client().get("/admin/v1/backups").json()["backups"]


@pytest.mark.parametrize("route", ["metrics", "config"])
def test_answers_that_are_text_come_as_text(pair, route):
    first, _ = pair.dispatchers
    fleet_of(first, 2)
    answers = ask(first, route)
    wanted = {"metrics": "umbo_requests_total", "config": "[server]"}[route]
    assert [one["status"] for one in answers] == [200, 200]
    assert all(isinstance(one["answer"], str) and wanted in one["answer"] for one in answers), answers


def test_a_question_that_waits_is_answered_in_the_time_of_all(pair):
    first, _ = pair.dispatchers
    fleet_of(first, 2)
    clock = first.clock
    with standing_still(clock):
        began = clock.monotonic()
        waiting = Waiting(lambda: ask(first, f"events?since={2**53 - 1}-{2**53 - 1}&wait=25"))
        # Time passes only as long as they go on, however slow they are.
        go_on = lambda: all(one.client().get("/healthz").status == 200 for one in pair.dispatchers)
        step_until(clock, lambda: go_on() and waiting.are_answered(), "the time of all is over", step=0.1)
        (answers,) = waiting.answers()
        # Far less than the answer would take.
        assert ANSWER_SECONDS <= clock.monotonic() - began < 5 * ANSWER_SECONDS
    assert all("status" not in one for one in answers), answers


def test_events_are_followed_from_one_dispatcher_to_another(pair):
    first, second = pair.dispatchers

    def events(dispatcher, since="0"):
        answer = dispatcher.admin().get(f"/admin/v1/events?since={since}")
        assert answer.status == 200, answer
        return answer.json()

    changes = lambda told: [(one["id"], one["subject"]) for one in told["events"] if one["kind"] == "namespace-created"]
    seen = lambda dispatcher, name: name in [subject for _, subject in changes(events(dispatcher))]
    first.namespace("before-the-cursor")
    wait_until(lambda: seen(second, "before-the-cursor"), "the change is followed")
    cursor = events(first)["next"]
    second.namespace("behind-the-cursor")
    wait_until(lambda: seen(first, "behind-the-cursor"), "the change is followed")
    for dispatcher in pair.dispatchers:
        assert [subject for _, subject in changes(events(dispatcher, cursor))] == ["behind-the-cursor"]
    assert changes(events(first)) == changes(events(second))
    assert "started" not in [one["kind"] for one in events(first, cursor)["events"]]


@pytest.mark.parametrize("route", ["fleet", "fleet/hot", "", "nothing", "kv", "tokens", "../hot"])
def test_what_is_no_route_is_refused(pair, route):
    answer = pair.dispatchers[0].admin().get(f"/admin/v1/fleet/{route}")
    answer.problem(404, "route-not-found")


def test_only_get_is_asked(pair):
    admin = pair.dispatchers[0].admin()
    for method in ("PUT", "POST", "DELETE"):
        assert admin.request(method, "/admin/v1/fleet/namespaces/demo").status == 405


def test_one_that_is_away_is_shown_with_its_last_answer(new_cluster):
    cluster = new_cluster(2)
    cluster.start()
    first, second = cluster.dispatchers
    fleet_of(first, 2)
    before = ask(first, "shed")
    second.kill()
    first.clock.advance(PRESENCE_SECONDS)
    away = [one for one in fleet_of(first, 1) if one["state"] == "away"]
    assert len(away) == 1 and away[0]["about"]["admin_url"].endswith(f":{second.admin_port}")
    after = ask(first, "shed")
    assert after[1]["process"]["state"] == "away"
    assert after[1]["answer"] == before[1]["answer"] and after[1]["answered_ms"] == before[1]["answered_ms"]
    assert after[0]["answered_ms"] > before[0]["answered_ms"]
    # It comes back as another process.
    second.start()
    again = fleet_of(first, 2)
    assert len(again) == 3 and again[1]["id"] != again[2]["id"]
    cluster.stop()


def test_a_home_whose_clock_is_behind_keeps_no_dispatcher_that_was_killed(new_cluster):
    cluster = new_cluster(2)
    home = cluster.nodes[cluster.tier.owner(0)]
    home.clock = Clock()
    home.clock.jump(-3600)
    first, second = cluster.start().dispatchers
    fleet_of(first, 2)
    second.kill()
    for clock in (home.clock, first.clock):
        clock.advance(2 * PRESENCE_SECONDS)
    fleet_of(first, 1)
    first.stop()
    cluster.tier.stop()


def test_one_that_stops_in_order_is_away_at_once(new_cluster):
    cluster = new_cluster(2).start()
    first, second = cluster.dispatchers
    fleet_of(first, 2)
    with standing_still(first.clock):
        second.process.send_signal(signal.SIGTERM)
        step_until(first.clock, lambda: not second.is_running(), "it has stopped", step=0.1)
        second.wait_for_good_end()
        assert [one["state"] for one in fleet_of(first, 1)] == ["live", "away"]
    closed = re.findall("the (data|cluster|admin) port is closed", second.log_text())
    assert closed == ["data", "cluster", "admin"]
    cluster.stop()


def test_one_that_stops_leaves_before_its_ports_close(new_cluster):
    cluster = new_cluster(2, {"server": {"drain_delay": "1h"}}).start()
    first, second = cluster.dispatchers
    fleet_of(first, 2)
    second.process.send_signal(signal.SIGTERM)
    assert [one["state"] for one in fleet_of(first, 1)] == ["live", "away"]
    assert second.is_running() and "port is closed" not in second.log_text()
    cluster.discard()


def test_while_the_home_is_away_the_last_known_ones_are_asked(new_cluster):
    cluster = new_cluster(2).start()
    first, second = cluster.dispatchers
    for dispatcher in cluster.dispatchers:
        fleet_of(dispatcher, 2)
    home = cluster.nodes[cluster.tier.owner(0)]
    home.kill()
    first.clock.advance(2 * PRESENCE_SECONDS)
    for dispatcher in cluster.dispatchers:
        answers = ask(dispatcher, "shed")
        assert [(one["process"]["state"], one["status"]) for one in answers] == [("live", 200)] * 2
        assert "error" not in answers[1] and answers[1]["answered_ms"] == answers[0]["answered_ms"]
    failed, mended = (f"the presence of this dispatcher {end}" for end in ("cannot be written", "is written again"))
    # Also by the other one: its attempt may wait longer, and succeed once the home is there.
    wait_until(lambda: all(failed in one.log_text() for one in cluster.dispatchers), "it is told")
    home.start()
    wait_until(lambda: all(mended in one.log_text() for one in cluster.dispatchers), "it is told")
    fleet_of(first, 2)
    assert first.log_text().count(failed) == 1
    second.kill()
    # It is in the list yet, and says nothing: its last answer is none of a live one.
    silent = ask(first, "shed")[1]
    assert "refused" in silent["error"] and silent["process"]["state"] == "away"
    assert silent["status"] == 200 and silent["answered_ms"] <= answers[0]["answered_ms"] + 1000 * PRESENCE_SECONDS
    first.stop()
    cluster.tier.stop()


def token(folder, name, grant):
    """Makes a token in the file of tokens, and returns its secret."""
    made = subprocess.run(
        [binary(), "token", "create", "--file", str(folder / "tokens.toml"), "--name", name, "--grant", grant],
        capture_output=True, text=True, timeout=60, check=True,
    )
    return made.stdout.split()[-1]


def test_any_dispatcher_explains_what_one_did_that_is_gone(new_cluster):
    cluster = new_cluster(2).start()
    first, second = cluster.dispatchers
    assert first.client().get("/v1/ns/nowhere/kv/a", Umbo_Request_Id="gone").status == 404
    explained = lambda: second.admin().get("/admin/v1/why/gone")
    step_until(cluster.tier.clock, lambda: explained().status == 200, "the record is written", step=5)
    assert "kept" not in ask(first, "why/gone")[0]["answer"], "memory is asked first"
    name = first.admin().get("/admin/v1/fleet").json()["processes"][0]["about"]["name"]
    first.kill()
    record = explained().json()
    assert (record["code"], record["kept"]["server"]) == ("namespace-not-found", name), record
    refusals = second.admin().get("/admin/v1/why?caller=anonymous").json()
    assert [reason["example"] for reason in refusals["reasons"]] == ["gone"], refusals
    home = cluster.nodes[cluster.tier.owner(0)]
    home.kill()
    # What is in memory is told without the home.
    assert second.client().get("/v1/ns/nowhere/kv/a", Umbo_Request_Id="here").status == 404
    assert second.admin().get("/admin/v1/why/here").json()["code"] == "namespace-not-found"
    refusals = second.admin().get("/admin/v1/why?caller=anonymous").json()
    assert [reason["example"] for reason in refusals["reasons"]] == ["here"], refusals
    assert "could not be read" in refusals["notes"][0], refusals
    assert second.admin().get("/admin/v1/why/nothing").status == 503
    home.start()
    wait_until(lambda: explained().status == 200, "the home is back")
    # All of the cluster ends in order.
    first.start()
    cluster.stop()


def test_each_refuses_what_the_asker_may_not_see(new_cluster, folder):
    ops, narrow = token(folder, "ops", "*:*"), token(folder, "narrow", "read:demo")
    cluster = new_cluster(2, {"auth": {"token_file": str(folder / "tokens.toml")}})
    cluster.start()
    first, _ = cluster.dispatchers
    admin = first.admin(token=ops)
    wait_until(lambda: len(admin.get("/admin/v1/fleet").json()["processes"]) == 2, "both are known")
    assert [one["status"] for one in admin.get("/admin/v1/fleet/shards").json()["processes"]] == [200, 200]
    few = first.admin(token=narrow)
    assert few.get("/admin/v1/fleet/shards").status == 403
    assert few.get("/admin/v1/fleet").status == 403
    assert first.admin().get("/admin/v1/fleet/shards").status == 401
    # No header that a client may send says who asks.
    forged = first.admin(token=narrow).get("/admin/v1/shards", Umbo_Quota_User="ops")
    assert forged.status in (400, 403)
    cluster.stop()


def test_who_may_not_observe_sees_no_last_answer_given_to_another(new_cluster, folder):
    ops, narrow = token(folder, "ops", "*:*"), token(folder, "narrow", "read:demo")
    cluster = new_cluster(2, {"auth": {"token_file": str(folder / "tokens.toml")}}).start()
    first, second = cluster.dispatchers
    route = "/admin/v1/fleet/why?caller=ops&last=1h"
    asked = lambda secret: first.admin(token=secret).get(route).json()["processes"]  # noqa: E731
    wait_until(lambda: [one.get("status") for one in asked(ops)] == [200, 200], "both are known")
    second.kill()
    # Each refuses, and one says nothing; its answer to the observer is the observer's only.
    assert asked(narrow) == []
    assert [one["status"] for one in asked(ops)] == [200, 200]
    first.stop()
    cluster.tier.stop()


def test_a_server_with_its_store_in_its_process_is_alone(new_server):
    server = new_server().start()
    processes = server.admin().get("/admin/v1/fleet").json()["processes"]
    assert len(processes) == 1 and processes[0]["is_self"] and processes[0]["state"] == "live"
    answers = server.admin().get("/admin/v1/fleet/shards").json()["processes"]
    assert [one["status"] for one in answers] == [200] and answers[0]["answer"]["shards"]
