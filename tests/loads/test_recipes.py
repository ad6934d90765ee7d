"""The recipes of config/recipes against a server: cron with curl, the steps of a scheduler, a DAG of Airflow whose
scheduler is played here, and the files of a Spark job."""

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import types

import pytest

from bulk import run
from bulk_loads import Load, lines
from harness import Namespace, wait_until
from processes import PROJECT

RECIPES = PROJECT / "config/recipes"


@pytest.fixture
def ns(server, request):
    return server.namespace(f"n{abs(hash(request.node.name)) % 10**9}")


def rows_of(ns):
    return {row["pk"]: row["v"] for row in ns.scan_all()}


def write(path, rows):
    path.write_bytes(lines([{"pk": key, "v": value} for key, value in rows.items()]))
    return str(path)


def nightly(ns, folder, *files, code=0, **environment):
    """Runs the recipe of cron; returns what it said."""
    environment = {"LOAD_STATE": str(folder / "state"), "RETRY_SECONDS": "1"} | environment
    environment = os.environ | {"UMBO_URL": f"http://127.0.0.1:{ns.client.port}"} | environment
    command = [RECIPES / "nightly-load", ns.name, *files]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def loads_of(ns):
    return ns.client.get(f"/v1/ns/{ns.name}/loads").json()["loads"]


def test_a_night_is_live_once_however_often_the_command_is_run(ns, folder):
    files = [write(folder / "a.ndjson", {"a": "1", "b": "1"}), str(folder / "b.csv")]
    (folder / "b.csv").write_text("pk,v\nc,1\n")
    for _ in range(2):
        assert "is live: 3 rows" in nightly(ns, folder, *files)
    assert rows_of(ns) == {"a": "1", "b": "1", "c": "1"} and len(loads_of(ns)) == 1
    # The next night.
    write(folder / "a.ndjson", {"a": "2", "d": "2", "e": "2"})
    subprocess.run(["zstd", "-q", "a.ndjson"], cwd=folder, check=True)
    nightly(ns, folder, str(folder / "a.ndjson.zst"))
    assert rows_of(ns) == {"a": "2", "d": "2", "e": "2"} and len(loads_of(ns)) == 2


def test_a_night_that_fails_says_why_and_leaves_what_is_live(ns, folder):
    nightly(ns, folder, write(folder / "a.ndjson", {"a": "1", "b": "1"}))
    bad = folder / "bad.ndjson"
    bad.write_text('{"pk":"c","v":"2"}\nnothing\n')
    for _ in range(2):
        assert "is failed" in (said := nightly(ns, folder, str(bad), code=1)) and "1 of 2" in said
    assert rows_of(ns) == {"a": "1", "b": "1"}
    # The same file by another word: one of two rows may be wrong.
    spec = {"mode": "replace", "activate": True, "max_reject_ratio": 0.5, "guards": {"rows_change_max": 1}}
    said = nightly(ns, folder, str(bad), code=7, LOAD_SPEC=json.dumps(spec))
    assert said.startswith("nightly-load: 1 rows cannot be read") and rows_of(ns) == {"c": "2"}
    # A part that is refused ends the load: it would keep the next one out.
    spec = {"mode": "replace", "as_of": 5}
    assert "as_of" in nightly(ns, folder, str(bad), code=1, LOAD_SPEC=json.dumps(spec))
    assert "cannot be read" in nightly(ns, folder, str(folder / "none.csv"), code=2)
    assert "usage" in nightly(ns, folder, code=2)
    assert "ends with none" in nightly(ns, folder, write(folder / "a.txt", {}), code=2)
    assert all(load["state"] not in ("created", "uploading") for load in loads_of(ns))


def test_what_an_earlier_run_has_left_behind_is_aborted(ns, folder):
    left = Load.create(ns.client, ns.name, mode="replace")
    good = write(folder / "a.ndjson", {"a": "1"})
    # A load of somebody else stays.
    assert left.id in nightly(ns, folder, good, code=1)
    assert left.info()["state"] == "created"
    (folder / "state").write_text(left.id)
    nightly(ns, folder, good)
    assert left.info()["state"] == "aborted" and rows_of(ns) == {"a": "1"}


def test_a_server_that_is_away_is_told_by_the_exit_code_and_the_load_goes_on(new_server, folder):
    server = new_server().start()
    ns = server.namespace("demo")
    # The rows have to wait for a quota, and the command does not wait for long.
    never = {"name": "never", "match": {"operations": ["batch-write"]}, "per": ["caller"], "unit": "writes"}
    assert ns.client.put("/admin/v1/quotas/never", json.dumps(never | {"rate": 0.001, "burst": 1})).status == 201
    files = [write(folder / "a.ndjson", {f"p{n}": "1" for n in range(50)})]
    assert "'never'" in nightly(ns, folder, *files, code=6, WAIT_SECONDS="0")
    server.stop()
    assert "cannot be reached" in nightly(ns, folder, *files, code=6)
    ns = Namespace(server.start().client(), "demo")
    assert ns.client.delete("/admin/v1/quotas/never").status == 200
    assert "is live: 50 rows" in nightly(ns, folder, *files)
    assert len(loads_of(ns)) == 1


def test_a_command_that_is_killed_goes_on_where_it_was(ns, folder):
    files = [write(folder / f"{number}.ndjson", {f"p{number}-{n}": "x" * 200 for n in range(20_000)}) for number in range(6)]
    environment = os.environ | {"UMBO_URL": f"http://127.0.0.1:{ns.client.port}", "LOAD_STATE": str(folder / "state")}
    command = [RECIPES / "nightly-load", ns.name, *files]
    killed = subprocess.Popen(command, env=environment, start_new_session=True)
    wait_until(lambda: loads_of(ns), "the load is created")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert "120000 rows" in nightly(ns, folder, *files)
    assert len(loads_of(ns)) == 1 and len(ns.scan_all()) == 120_000


def test_a_token_is_sent_and_not_shown(new_server, folder):
    server = new_server().start()
    client = server.client()
    make = lambda *grants: client.post("/admin/v1/tokens", {"name": "x", "grants": list(grants)}).json()["token"]
    client.token = make("*:*")
    assert client.put("/admin/v1/namespaces/demo", b"{}").status == 201
    ns, good = Namespace(client, "demo"), write(folder / "a.ndjson", {"a": "1"})
    nightly(ns, folder, good, UMBO_TOKEN=make("write:demo", "read:demo"))
    assert rows_of(ns) == {"a": "1"}
    said = nightly(ns, folder, good, code=1, UMBO_TOKEN=make("read:demo"))
    assert "'write'" in said and "demo" in said


@pytest.fixture
def recipe(server, ns, monkeypatch):
    """Imports a module of the recipes."""
    monkeypatch.syspath_prepend(RECIPES)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("UMBO_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("UMBO_NAMESPACE", ns.name)
    for name in ("umbo_load", "airflow_dag", "spark_load"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module


def test_the_steps_of_a_scheduler_may_be_repeated(ns, folder, recipe):
    module = recipe("umbo_load")
    loads, file = module.Loads(ns.name), write(folder / "a.ndjson", {"a": "1"})
    load = loads.create("night-1")
    assert loads.create("night-1") == load
    for _ in range(2):
        loads.upload(load, 0, file)
    for _ in range(2):
        loads.seal(load, 1)
    wait_until(lambda: loads.is_live(load), "it is live")
    loads.abandon(load)
    assert loads.create("night-1") == load and rows_of(ns) == {"a": "1"}
    other = loads.create("night-2", guards={"rows_min": 5})
    with pytest.raises(module.Refused, match=other):
        loads.create("night-3")
    loads.upload(other, 0, file)
    loads.seal(other, 1)
    with pytest.raises(module.Failed, match="rows_min"):
        wait_until(lambda: loads.is_live(other), "it fails")
    assert (third := loads.create("night-2", guards={"rows_min": 5})) not in (load, other)
    loads.abandon(third)
    assert loads.look(third)["state"] == "aborted"


class Task:
    """A task whose scheduler runs it at once: what has no cause to run is left out."""

    def __init__(self, function, ran, more):
        self.function, self.ran, self.more = function, ran, more

    def __call__(self, *arguments, **named):
        if "trigger_rule" in self.more:
            return Result(None)
        context = {"ds": "2026-11-23", "run_id": "scheduled__2026-11-23"}
        wanted = self.function.__code__.co_varnames[: self.function.__code__.co_argcount]
        named |= {name: value for name, value in context.items() if name in wanted}
        given = [value.value if isinstance(value, Result) else value for value in arguments]
        named = {name: value.value if isinstance(value, Result) else value for name, value in named.items()}
        self.ran.append(self.function.__name__)
        call = functools.partial(self.function, *given, **named)
        return Result(wait_until(call, "it is so") if self.more.get("is_sensor") else call())

    def partial(self, **named):
        return types.SimpleNamespace(expand=lambda part: Result([self(part=one, **named) for one in part.value]))


class Result:
    def __init__(self, value):
        self.value = value

    def __rshift__(self, other):
        return other


def test_a_dag_of_airflow_loads_its_files(ns, folder, recipe, monkeypatch):
    ran = []

    def task(function=None, **more):
        return Task(function, ran, more) if function else lambda function: Task(function, ran, more)

    task.sensor = lambda **more: lambda function: Task(function, ran, more | {"is_sensor": True})
    decorators = types.ModuleType("airflow.decorators")
    decorators.task, decorators.dag = task, lambda **_: lambda function: function
    exceptions = types.ModuleType("airflow.exceptions")
    exceptions.AirflowFailException = type("AirflowFailException", (Exception,), {})
    for module in (types.ModuleType("airflow"), decorators, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("UMBO_FILES", f"{folder}/{{day}}-*.ndjson")
    for number in range(3):
        write(folder / f"2026-11-23-{number}.ndjson", {f"p{number}": "1"})
    write(folder / "2026-11-22-0.ndjson", {"yesterday": "1"})
    recipe("airflow_dag")
    assert ran == ["create", "files", "upload", "upload", "upload", "seal", "wait"]
    assert rows_of(ns) == {"p0": "1", "p1": "1", "p2": "1"}


def test_files_of_spark_are_loaded_in_their_order(server, ns, folder, recipe):
    other = server.namespace(f"{ns.name}-source")
    assert other.write([{"pk": f"p{n:04}", "v": str(n)} for n in range(300)]).status == 200
    run(server, "kv", "export", other.name, "-f", "part-00000-c0.snappy.parquet", folder=folder)
    run(server, "kv", "export", other.name, "-f", "part-00001-c0.snappy.parquet", folder=folder)
    spark, loads = recipe("spark_load"), recipe("umbo_load").Loads(ns.name)
    load = spark.load(loads, str(folder), poll_seconds=0.1)
    assert spark.load(loads, str(folder), poll_seconds=0.1) == load, "it is not sent again"
    assert len(loads.look(load)["parts"]) == 2 and rows_of(ns) == {f"p{n:04}": str(n) for n in range(300)}

    class Rows:
        """Records what is asked of Spark."""

        asked = []

        def __getattr__(self, name):
            return lambda *arguments: self.asked.append((name, *arguments)) or self

        write = property(lambda self: self)

    spark.write(Rows(), "listings", "out", 8)
    assert [name for name, *_ in Rows.asked] == [
        "table", "selectExpr", "repartitionByRange", "sortWithinPartitions", "mode", "parquet",
    ]  # fmt: skip
