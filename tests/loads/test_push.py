"""`umbo load`: files become rows whatever happens on the way, and what cannot is told."""

import json
import os
import random
import subprocess

import pytest

from bulk import end_of, environment, read_rows, restart, run, start, step_until, write_rows
from harness import binary, row_bytes
from processes import PROJECT, wait_until

CITIES = PROJECT / "tests/data/cities-sample.ndjson"
# By hand with more of them, on a release build: `UMBO_TEST_ROWS=1000000`.
PART_ROWS = int(os.environ.get("UMBO_TEST_ROWS", "12000"))
PARTS = PART_ROWS // 1_100
KILLS = 8


def create(server, namespace):
    answer = server.client().put(f"/admin/v1/namespaces/{namespace}", b"{}")
    assert answer.status == 201, answer


def asked(server, *arguments, folder, code=0):
    """What a command prints as JSON."""
    done = subprocess.run(
        [binary(), *arguments, "-o", "json"], env=environment(server), cwd=folder, capture_output=True, timeout=300
    )
    assert done.returncode == code, (done.returncode, done.stderr.decode()[-4000:])
    return json.loads(done.stdout) if done.stdout else done.stderr.decode()


def push(server, namespace, *arguments, folder, code=0):
    return asked(server, "load", "push", namespace, *arguments, "--wait", folder=folder, code=code)


def stored(server, namespace, folder):
    """The rows of a namespace by key, without their versions."""
    run(server, "kv", "export", namespace, "-f", "stored.ndjson", "--overwrite", folder=folder)
    rows = {}
    for line in (folder / "stored.ndjson").read_text(encoding="utf-8").splitlines()[:-1]:
        row = json.loads(line)
        row.pop("version")
        rows[row_bytes(row, "pk"), row_bytes(row, "sk")] = row
    return rows


def test_the_cities_are_the_same_from_every_format(server, folder):
    (folder / "cities.ndjson").write_bytes(CITIES.read_bytes())
    run(server, "kv", "import", "--create", "cities", "cities.ndjson", folder=folder)
    expected = stored(server, "cities", folder)
    assert len(expected) == 500
    for name in ["c.ndjson", "c.ndjson.zst", "c.csv", "c.csv.gz", "c.parquet"]:
        run(server, "kv", "export", "cities", "-f", name, folder=folder)
        namespace = "from-" + name.replace(".", "-")
        create(server, namespace)
        load = push(server, namespace, name, folder=folder)
        assert (load["state"], load["rows_applied"], load["rows_rejected"]) == ("live", 500, 0), load
        assert stored(server, namespace, folder) == expected, name
        assert not (folder / f"{name}.load").exists()


def write_parts(path):
    """A file of some parts of a MiB each; returns its rows by key."""
    numbers = random.Random(5)
    rows = {(f"p{n % 997}", f"{n}"): numbers.randbytes(500).hex() for n in range(PART_ROWS)}
    with open(path, "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"pk": pk, "sk": sk, "v": v}) + "\n" for (pk, sk), v in rows.items())
    assert path.stat().st_size > PARTS << 20
    return rows


def test_a_push_that_is_killed_goes_on_with_its_load(server, folder):
    rows = write_parts(folder / "rows.ndjson")
    create(server, "killed")
    arguments = ["load", "push", "killed", "rows.ndjson", "--part-mib", "1", "--connections", "2", "--wait"]
    client, loads = server.client(), "/v1/ns/killed/loads"

    def load():
        listed = client.get(loads).json()["loads"]
        assert len(listed) <= 1, listed
        return client.get(f"{loads}/{listed[0]['id']}").json() if listed else None

    def whole_parts(count):
        return lambda: load() and sum(part["complete"] for part in load()["parts"]) >= count

    # Before the load is there, while it is sent, and while it is waited for. It cannot end meanwhile: a quota holds it back
    # until it is created, and then it is paused.
    policy = {"name": "held", "match": {"operations": ["batch-write"], "namespace": "killed"}, "per": ["namespace"]}
    policy |= {"unit": "writes", "rate": 1, "burst": 1}
    assert client.put("/admin/v1/quotas/held", json.dumps(policy)).status == 201
    drawn = sorted(random.Random(3).sample(range(1, PARTS), KILLS - 4))
    until = [(folder / "rows.ndjson.load").exists, load, *map(whole_parts, drawn)]
    until += 2 * [lambda: load()["state"] not in ("created", "uploading")]
    for number, is_so in enumerate(until):
        command = start(server, *arguments, folder=folder)
        wait_until(lambda: is_so() or command.poll() is not None, "the push gets on")
        assert command.poll() is None, command.stderr.read()
        command.kill()
        command.communicate()
        if number == 1:
            assert client.delete("/admin/v1/quotas/held").status == 200
            assert client.post(f"{loads}/{load()['id']}/pause").status == 200
    assert client.post(f"{loads}/{load()['id']}/resume").status == 200
    run(server, *arguments, folder=folder)
    assert load()["state"] == "live"
    run(server, "kv", "export", "killed", "-f", "out", folder=folder)
    assert read_rows(folder / "out")[0] == rows


def test_a_push_outlives_servers_that_are_killed(new_server, folder):
    from tier import free_port

    ports = {"listen": f"127.0.0.1:{free_port()}", "admin_listen": f"127.0.0.1:{free_port()}"}
    server = new_server({"server": {"drain_delay": "0s"} | ports}).start()
    rows = write_parts(folder / "rows.ndjson")
    create(server, "n")
    # What is applied takes seconds of a clock that stands still while nobody looks.
    policy = {"name": "slow", "match": {"operations": ["batch-write"]}, "per": ["caller"], "unit": "writes"}
    policy |= {"rate": PART_ROWS, "burst": PART_ROWS // 20}
    assert server.client().put("/admin/v1/quotas/slow", json.dumps(policy)).status == 201
    server.clock.stop()
    command = start(
        server, "load", "push", "n", "rows.ndjson", "--part-mib", "1", "--patience", "3m", "--wait", folder=folder,
        clock=server.clock,
    )  # fmt: skip
    numbers = random.Random(4)
    in_parts = sorted(numbers.sample(range(PARTS), KILLS // 2))
    in_rows = sorted(numbers.sample(range(PART_ROWS * 2 // 3), KILLS // 2))

    def parts():
        listed = server.client().get("/v1/ns/n/loads").json()["loads"]
        if not listed:
            return -1
        load = server.client().get(f"/v1/ns/n/loads/{listed[0]['id']}").json()
        return sum(part["complete"] for part in load["parts"])

    stored = lambda: server.metric("umbo_shard_rows")
    for has_come, goals in ((parts, in_parts), (stored, in_rows)):
        for goal in goals:
            step_until(server.clock, lambda: has_come() >= goal, f"{goal} {has_come.__name__}")
            assert command.poll() is None, command.stderr.read()
            restart(server)
    assert server.client().delete("/admin/v1/quotas/slow").status == 200
    said = end_of(command, server.clock)
    assert command.returncode == 0, said[-4000:]
    server.clock.go()
    run(server, "kv", "export", "n", "-f", "out", folder=folder)
    assert read_rows(folder / "out")[0] == rows


def test_rejects_are_listed_and_fail_the_load_above_their_ratio(server, folder):
    (folder / "rows.csv").write_text("pk,v\na,1\nb\nc,3\nd,4\n")
    create(server, "strict")
    said = push(server, "strict", "rows.csv", folder=folder, code=1)
    assert said["state"] == "failed" and "reject" in said["reason"], said
    create(server, "lenient")
    load = push(server, "lenient", "rows.csv", "--max-reject-ratio", "0.5", folder=folder, code=7)
    assert (load["state"], load["rows_applied"], load["rows_rejected"]) == ("live", 3, 1), load
    done = subprocess.run(
        [binary(), "load", "rejects", "lenient", load["id"]], env=environment(server), capture_output=True, check=True
    )
    (reject,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (reject["part"], reject["line"], reject["text"]) == (0, 3, "b"), reject
    assert "it has 1 cell, but the header has 2 columns" in reject["reason"], reject


def test_a_file_that_cannot_be_read_makes_no_load(server, folder):
    (folder / "rows.csv").write_text("id,v\na,1\n")
    create(server, "misread")
    said = run(server, "load", "push", "misread", "rows.csv", "--mode", "replace", folder=folder, code=2)
    assert "'id'" in said, said
    assert asked(server, "load", "ls", "misread", folder=folder) == []
    assert os.listdir(folder) == ["rows.csv"], "nothing is left to go on with"


def test_a_push_that_ended_before_it_knew_its_load_goes_on_with_it(server, folder):
    write_rows(folder / "rows.ndjson", 100)
    pushed = ["load", "push", "found", "rows.ndjson", "--mode", "replace"]
    # What cannot be created leaves nothing to go on with.
    assert "found" in asked(server, *pushed, folder=folder, code=3)
    assert os.listdir(folder) == ["rows.ndjson"]
    create(server, "found")
    command = start(server, *pushed, "--wait", folder=folder)
    wait_until(lambda: asked(server, "load", "ls", "found", folder=folder), "the load is created")
    command.kill()
    command.wait()
    asked(server, *pushed, "--wait", folder=folder)
    (load,) = asked(server, "load", "ls", "found", folder=folder)
    assert (load["state"], load["rows_applied"]) == ("ready", 100), load


def test_rows_that_are_newer_than_the_data_stay(server, folder):
    create(server, "dated")
    client = server.client()
    assert client.put("/v1/ns/dated/kv/a/x", b"newer").status == 201
    (folder / "rows.ndjson").write_text('{"pk":"a","sk":"x","v":"old"}\n{"pk":"b","sk":"x","v":"b"}\n')
    load = push(server, "dated", "rows.ndjson", "--as-of", "2020-01-01T00:00:00Z", folder=folder)
    assert (load["rows_applied"], load["rows_skipped"]) == (1, 1), load
    assert client.get("/v1/ns/dated/kv/a/x").body == b"newer"
    load = push(server, "dated", "rows.ndjson", "--as-of", "2020-01-01T00:00:00Z", "--force", folder=folder)
    assert load["rows_skipped"] == 0 and client.get("/v1/ns/dated/kv/a/x").body == b"old", load


def test_named_columns_are_those_of_the_load(server, folder):
    create(server, "columns")
    (folder / "rows.csv").write_text("country,city,name\nDE,b,Berlin\nFR,p,Paris\n")
    push(server, "columns", "rows.csv", "--pk", "country", "--sk", "city", "--value-rest", folder=folder)
    assert server.client().get("/v1/ns/columns/kv/DE/b").body == b'{"name":"Berlin"}'


def test_the_load_of_an_export_that_was_cut_off_is_aborted(server, folder):
    create(server, "cut")
    (folder / "rows.ndjson").write_text('{"pk":"a","version":1,"v":"1"}\n{"pk":"b","version":2,"v":"2"}\n')
    said = run(server, "load", "push", "cut", "rows.ndjson", folder=folder, code=7)
    assert "there is no end line" in said and "is aborted" in said, said
    assert [load["state"] for load in asked(server, "load", "ls", "cut", folder=folder)] == ["aborted"]
    assert os.listdir(folder) == ["rows.ndjson"]
    assert server.client().get("/v1/ns/cut/kv/a").status == 404


def test_another_file_or_other_options_do_not_go_on_with_a_load(server, folder):
    create(server, "other")
    (folder / "rows.ndjson").write_text('{"pk":"a","v":"1"}\n')
    policy = {"name": "none", "match": {"operations": ["batch-write"], "namespace": "other"}, "per": ["namespace"]}
    policy |= {"unit": "writes", "rate": 1, "burst": 1}
    assert server.client().put("/admin/v1/quotas/none", json.dumps(policy)).status == 201
    command = start(server, "load", "push", "other", "rows.ndjson", folder=folder)
    wait_until((folder / "rows.ndjson.load").exists, "a load is begun")
    command.kill()
    command.communicate()
    assert server.client().delete("/admin/v1/quotas/none").status == 200
    said = run(server, "load", "push", "other", "rows.ndjson", "--force", folder=folder, code=2)
    assert "with other options" in said, said
    (folder / "rows.ndjson").write_text('{"pk":"a","v":"1"}\n{"pk":"b","v":"2"}\n')
    said = run(server, "load", "push", "other", "rows.ndjson", folder=folder, code=2)
    assert "has changed since" in said, said


def test_a_list_tells_how_far_each_load_is(server, folder):
    create(server, "listed")
    (folder / "rows.ndjson").write_text('{"pk":"a","v":"1"}\n{"pk":"b","v":"2"}\n')
    (folder / "bad.ndjson").write_text('{"pk":"a","v":"1"}\nno row\n')
    for mode in ("merge", "replace"):
        run(server, "load", "push", "listed", "rows.ndjson", "--wait", "--mode", mode, folder=folder)
    run(server, "load", "push", "listed", "bad.ndjson", "--wait", folder=folder, code=1)
    listed = asked(server, "load", "ls", "listed", folder=folder)
    counts = [(load["state"], load["rows_applied"], load["rows_rejected"]) for load in listed]
    assert counts == [("live", 2, 0), ("ready", 2, 0), ("failed", 0, 1)], listed
    for load in listed:
        assert load.pop("parts") == []
        told = asked(server, "load", "status", "listed", load["id"], folder=folder)
        assert len(told.pop("parts")) == 1
        assert load == told


def test_a_load_is_listed_paused_and_ended(server, folder):
    create(server, "ended")
    assert server.client().post("/v1/ns/ended/loads", b"{}").status == 201
    (load,) = asked(server, "load", "ls", "ended", folder=folder)
    id = load["id"]
    assert asked(server, "load", "pause", "ended", id, folder=folder)["paused"] is True
    assert asked(server, "load", "resume", "ended", id, folder=folder)["paused"] is False
    dry = asked(server, "load", "abort", "ended", id, "--dry-run", folder=folder)
    assert dry["dry_run"] is True and dry["state"] == "aborted", dry
    assert asked(server, "load", "status", "ended", id, folder=folder)["state"] == "created"
    assert asked(server, "load", "abort", "ended", id, folder=folder)["state"] == "aborted"
    assert asked(server, "load", "watch", "ended", id, folder=folder, code=1)["state"] == "aborted"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["push", "absent", "rows.ndjson"], 3, "absent"),
        (["push", "refusals", "none.ndjson"], 1, "cannot read none.ndjson"),
        (["push", "refusals", "rows.ndjson", "--pk", "x"], 2, "has fields and no columns"),
        (["push", "refusals", "text.ndjson"], 2, "is not a JSON object"),
        (["push", "refusals", "/dev/null"], 2, "no file that can be read twice"),
        (["push", "refusals", "rows.ndjson", "--max-reject-ratio", "2"], 2, "a ratio is a number from 0 to 1"),
        (["status", "refusals", "none"], 3, "not found"),
        (["watch", "refusals", "none"], 3, "not found"),
        (["rejects", "refusals", "none"], 3, "not found"),
        (["abort", "refusals", "none"], 3, "not found"),
    ],
)
def test_what_cannot_be_is_refused_by_name(server, folder, arguments, code, says):
    server.client().put("/admin/v1/namespaces/refusals", b"{}")
    (folder / "rows.ndjson").write_text('{"pk":"a","v":"1"}\n')
    (folder / "text.ndjson").write_text("not rows\n")
    said = run(server, "load", *arguments, folder=folder, code=code)
    assert says.lower() in said.lower(), said
