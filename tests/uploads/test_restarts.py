"""Imports and exports while the server is killed again and again: no row is lost, given up or read twice."""

import gzip
import json
import os
import random
import re
import signal
import subprocess

import pytest

from bulk import PATIENCE, end_of, files_of, read_rows, restart, row, run, start, step_until, write_rows
from harness import WAIT_SECONDS

# By hand with more of them, on a release build: `UMBO_TEST_ROWS=1000000`.
ROWS = int(os.environ.get("UMBO_TEST_ROWS", "50000"))
FEW_ROWS = ROWS // 10
KILLS = 10
# A page of an export costs more, so that each life of a server begins with one of them.
SCAN_RATE = 1_000
KILLS_OF_EXPORT = 3


# Rows of more than 8 MiB, which an import sends as a load.
LONG_ROWS = 9_000


def long_row(number, word="value"):
    return row(number, f"{word} {number} " + "x" * 1_000)


def write_long_rows(path, word="value"):
    with open(path, "w", encoding="utf-8") as lines:
        for at in range(LONG_ROWS):
            lines.write(json.dumps(long_row(at * 7919 % LONG_ROWS, word)) + "\n")


def fixed(new_server):
    """A server that keeps its ports over restarts."""
    from tier import free_port

    ports = {"listen": f"127.0.0.1:{free_port()}", "admin_listen": f"127.0.0.1:{free_port()}"}
    return new_server({"server": {"drain_delay": "0s"} | ports}).start()


def limit(server, unit, rate, burst):
    """Paces bulk work by a clock that stands still from here on, but for the steps of the test. A restart fills the bucket
    again."""
    policy = f'{{"name":"slow","unit":"{unit}","per":["namespace"],"rate":{rate},"burst":{burst}}}'
    answer = server.client().put("/admin/v1/quotas/slow", policy.encode())
    assert answer.status == 201, answer
    server.clock.stop()


def unlimit(server):
    assert server.client().delete("/admin/v1/quotas/slow").status == 200


def pages_begun(server):
    """Pages of exports that a server has sent since it started, and those that it sends now."""
    text = server.admin().get("/metrics").body.decode()
    of_scans = r'^umbo_requests_(?:total\{operation="scan",status="200"|in_flight\{operation="scan")\} (\d+)$'
    return sum(map(int, re.findall(of_scans, text, re.M)))


def rows_of(server):
    return server.metric("umbo_shard_rows")


def test_an_import_survives_ten_kills(new_server, folder):
    server = fixed(new_server)
    write_rows(folder / "rows", ROWS)
    limit(server, "writes", ROWS // 12, burst=ROWS // 100)
    command = start(server, "kv", "import", "--create", "n", "rows", *PATIENCE, folder=folder, clock=server.clock)
    chance = random.Random(1)
    for goal in sorted(chance.sample(range(ROWS // 20, ROWS * 9 // 10), KILLS)):
        step_until(server.clock, lambda: rows_of(server) >= goal, f"{goal} rows are written")
        assert command.poll() is None, command.communicate()
        restart(server, away=chance.uniform(0, 1.5))
    unlimit(server)
    said = end_of(command, server.clock)
    assert command.returncode == 0, said[-4000:]
    assert f"{ROWS} rows written, 0 failed" in said, said
    assert files_of(folder, "rows") == []
    server.clock.go()
    run(server, "kv", "export", "n", "-f", "out", folder=folder)
    rows, end = read_rows(folder / "out")
    assert rows == read_rows(folder / "rows")[0] and end["rows"] == ROWS


def test_an_export_survives_kills_and_is_equal_to_the_input(new_server, folder):
    server = fixed(new_server)
    write_rows(folder / "rows", ROWS)
    run(server, "kv", "import", "--create", "n", "rows", folder=folder)
    chance = random.Random(2)
    for name in ("out", "out.gz"):
        limit(server, "ru", SCAN_RATE, burst=SCAN_RATE // 20)
        before = pages_begun(server)
        command = start(server, "kv", "export", "n", "-f", name, *PATIENCE, folder=folder, clock=server.clock)
        for pages in [0, 0, *chance.choices(range(3), k=KILLS_OF_EXPORT - 2)]:
            goes_on = lambda: command.poll() is not None or pages_begun(server) > before + pages
            step_until(server.clock, goes_on, f"{pages} pages are read, and one more is begun")
            assert command.poll() is None, command.communicate()
            restart(server)
            before = 0
        unlimit(server)
        said = end_of(command, server.clock)
        assert command.returncode == 0, said
        server.clock.go()
    assert files_of(folder, "out") == ["out.gz"]
    rows, end = read_rows(folder / "out")
    assert rows == read_rows(folder / "rows")[0] and end["rows"] == ROWS
    run(server, "kv", "import", "--create", "m", "out.gz", folder=folder)
    assert run(server, "kv", "import", "--create", "m", "out", folder=folder).count(f"{ROWS} rows written") == 1


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_an_import_of_a_larger_file_that_ended_early_goes_on_with_its_load(new_server, folder, how):
    server = fixed(new_server)
    write_long_rows(folder / "rows")
    with open(folder / "rows", "a", encoding="utf-8") as lines:
        # The later one wins, over all interruptions.
        lines.writelines('{"pk":"p1","sk":"1","v":"last"}\n' for _ in range(3))
        lines.write('{"sk":"no partition key"}\n')
    arguments = ["kv", "import", "--create", "n", "rows", *PATIENCE]
    # A command that has not begun to send ends by the signal.
    codes = {"interrupted": [130, -signal.SIGINT], "killed": [-signal.SIGKILL]}[how]
    limit(server, "writes", LONG_ROWS // 20, burst=LONG_ROWS // 20)
    for goal in (LONG_ROWS // 16, LONG_ROWS // 8, LONG_ROWS // 4):
        command = start(server, *arguments, folder=folder, clock=server.clock)
        step_until(server.clock, lambda: rows_of(server) >= goal, "it gets on")
        command.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
        # No time is let pass: the server would go on with what it has, to the end.
        assert command.wait(120) in codes
    # The server goes on by itself, also after a restart.
    restart(server)
    unlimit(server)
    server.clock.go()
    said = run(server, *arguments, folder=folder, code=7)
    assert "going on with load" in said and f"{LONG_ROWS + 3} rows written, 1 failed" in said, said
    assert files_of(folder, "rows") == ["rows.failed.ndjson"]
    (failed,) = (folder / "rows.failed.ndjson").read_text().splitlines()
    assert json.loads(failed)["failed"]["line"] == LONG_ROWS + 4
    assert json.loads(failed)["row"] == {"sk": "no partition key"}
    loads = server.client().get("/v1/ns/n/loads").json()["loads"]
    assert [(load["state"], load["import"]) for load in loads] == [("live", True)]
    run(server, "kv", "export", "n", "-f", "out", folder=folder)
    expected = {(one["pk"], one["sk"]): one["v"] for one in map(long_row, range(LONG_ROWS))} | {("p1", "1"): "last"}
    assert read_rows(folder / "out")[0] == expected


def test_an_import_of_a_larger_file_leaves_newer_rows_and_is_visible_before_its_end(new_server, folder):
    server = fixed(new_server)
    write_long_rows(folder / "rows")
    limit(server, "writes", LONG_ROWS // 8, burst=LONG_ROWS // 8)
    command = start(server, "kv", "import", "--create", "n", "rows", *PATIENCE, folder=folder, clock=server.clock)
    step_until(server.clock, lambda: rows_of(server) >= LONG_ROWS // 8, "rows are visible")
    assert command.poll() is None
    one = long_row(LONG_ROWS - 1)
    key = f"/v1/ns/n/kv/{one['pk']}/{one['sk']}"
    assert server.client().get(key).status == 404, "the last row is not there"
    unlimit(server)
    assert server.client().put(key, b"newer").status == 201
    said = end_of(command, server.clock)
    assert command.returncode == 0, said[-4000:]
    server.clock.go()
    assert f"{LONG_ROWS - 1} rows written, 0 failed, 1 skipped" in said, said
    assert server.client().get(key).body == b"newer"


def test_a_larger_file_that_cannot_be_read_leaves_no_load_behind(new_server, folder):
    server = fixed(new_server)
    write_long_rows(folder / "rows.csv")
    said = run(server, "kv", "import", "--create", "n", "rows.csv", folder=folder, code=2)
    assert "names no columns" in said, said
    # Its first row can be read, its end cannot.
    text = (folder / "rows.csv").read_bytes()
    (folder / "cut.gz").write_bytes(gzip.compress(text + os.urandom(20 << 20).hex().encode())[:-9])
    said = run(server, "kv", "import", "--create", "n", "cut.gz", folder=folder, code=2)
    assert "is aborted" in said, said
    assert [load["state"] for load in server.client().get("/v1/ns/n/loads").json()["loads"]] == ["aborted"]
    assert files_of(folder, "cut.gz") == []


def test_an_import_of_a_file_that_has_changed_begins_anew(new_server, folder):
    server = fixed(new_server)
    write_long_rows(folder / "rows")
    limit(server, "writes", 1, burst=1)
    arguments = ["kv", "import", "--create", "n", "rows", *PATIENCE]
    command = start(server, *arguments, folder=folder, clock=server.clock)
    loads = lambda: server.client().get("/v1/ns/n/loads").json().get("loads", [])
    step_until(server.clock, loads, "the load is there")
    command.kill()
    command.communicate()
    unlimit(server)
    server.clock.go()
    write_long_rows(folder / "rows", "changed")
    said = run(server, *arguments, folder=folder)
    assert "its file was another one" in said and f"{LONG_ROWS} rows written, 0 failed" in said, said
    assert [load["state"] for load in loads()] == ["aborted", "live"]


def test_an_export_that_ended_early_is_continued(new_server, folder):
    server = fixed(new_server)
    write_rows(folder / "rows", ROWS)
    run(server, "kv", "import", "--create", "n", "rows", folder=folder)
    # All of it takes some ten seconds of the clock.
    limit(server, "ru", SCAN_RATE // 10, burst=SCAN_RATE // 100)
    # Patient, as its clock may pass quicker than a busy machine starts it.
    ended_early = ["kv", "export", "n", "-f", "out.zst", *PATIENCE]
    command = start(server, *ended_early, folder=folder, clock=server.clock)
    part = folder / "out.zst.part"

    def has_begun():
        assert command.poll() is None, "it has not ended by the time it is seen"
        return part.exists() and part.stat().st_size > 0

    step_until(server.clock, has_begun, "the export has begun", step=0.05)
    server.kill()
    # Nothing is paced any more: it gives up when its patience is over.
    said = end_of(command, server.clock, step=2)
    assert command.returncode == 6 and "umbo kv export n -f out.zst --resume" in said, said
    assert not (folder / "out.zst").exists()
    server.clock.go()
    server.start()
    unlimit(server)
    run(server, "kv", "export", "n", "-f", "out.zst", "--resume", folder=folder)
    assert files_of(folder, "out.zst") == []
    run(server, "kv", "import", "--create", "m", "out.zst", folder=folder)
    run(server, "kv", "export", "m", "-f", "again", folder=folder)
    assert read_rows(folder / "again")[0] == read_rows(folder / "rows")[0]


def test_a_pipe_of_an_export_that_fails_is_not_taken_for_whole(new_server, folder):
    server = fixed(new_server)
    write_rows(folder / "rows", FEW_ROWS)
    run(server, "kv", "import", "--create", "n", "rows", folder=folder)
    export = start(server, "kv", "export", "n", folder=folder)
    # A pipe holds less than the rows that are left, so that the export cannot have ended when it is killed.
    some = export.stdout.read(10_000)
    export.kill()
    export.communicate()
    target = start(server, "kv", "import", "--create", "m", "-", folder=folder, stdin=subprocess.PIPE)
    said = target.communicate(some, timeout=WAIT_SECONDS)[1].decode()
    assert target.returncode == 7 and "not whole" in said, said
    run(server, "kv", "export", "n", "-f", "out", folder=folder)
    text = (folder / "out").read_bytes()
    (folder / "cut").write_bytes(text[: len(text) // 2])
    said = run(server, "kv", "import", "--create", "m", "cut", folder=folder, code=7)
    assert "there is no end line" in said, said
    (folder / "cut").write_bytes(b"".join(text.splitlines(keepends=True)[1:]))
    said = run(server, "kv", "import", "--create", "m", "cut", folder=folder, code=7)
    assert f"counts {FEW_ROWS} rows, and {FEW_ROWS - 1} precede it" in said, said
    (folder / "part").write_bytes(b"".join(text.splitlines(keepends=True)[:9]))
    run(server, "kv", "import", "--create", "m", "part", "--no-end", folder=folder)


def test_a_server_that_never_comes_back_ends_an_import_and_no_row_fails(new_server, folder):
    server = fixed(new_server)
    write_rows(folder / "rows", ROWS)
    limit(server, "writes", ROWS // 8, burst=ROWS // 8)
    command = start(server, "kv", "import", "--create", "n", "rows", "--patience", "1s", folder=folder, clock=server.clock)
    step_until(server.clock, lambda: rows_of(server) >= ROWS // 4, "it runs")
    server.kill()
    said = end_of(command, server.clock)
    assert command.returncode == 6 and "import rows again" in said and " 0 failed" in said, said
    assert files_of(folder, "rows") == []
    server.clock.go()
    server.start()
    unlimit(server)
    run(server, "kv", "import", "n", "rows", folder=folder)
    run(server, "kv", "export", "n", "-f", "out", folder=folder)
    assert read_rows(folder / "out")[0] == read_rows(folder / "rows")[0]
