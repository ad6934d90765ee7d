"""`umbo quota` and imports under a quota: what they print, store, wait for and end with."""

import concurrent.futures
import json
import os
import re
import subprocess

import pytest

from harness import Namespace, binary, wait_until
from quotas import QUOTAS, names, policy, put_policy, rejected, rows_of, total, until_rejected, usage

OK, USAGE, NOT_FOUND, PRECONDITION, REJECTED, PARTIAL, NOT_ALLOWED = 0, 2, 3, 4, 5, 7, 8
# How far time moves on before it is looked whether a command has ended.
STEP_SECONDS = 0.05


class Shell:
    """Runs `umbo` against a server.

    With a clock, it lives by that of the server, which stands still and is moved on for as long as the command takes.
    """

    def __init__(self, server, folder, token=None, clock=None):
        self.service = server.client()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}
        self.environment = clean | {"UMBO_SERVER": f"http://127.0.0.1:{server.port}"}
        if token:
            self.environment["UMBO_TOKEN"] = token
        self.folder, self.clock = folder, clock
        if clock:
            self.environment |= clock.environment()

    def run(self, *arguments, text=None):
        return subprocess.run(
            [binary(), *arguments],
            env=self.environment,
            cwd=self.folder,
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def run_in_steps(self, *arguments, text=None, first=None):
        """Runs a command whose time passes in steps, once it is so; notes the seconds that passed."""
        begun = self.clock.monotonic()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            done = pool.submit(self.run, *arguments, text=text)
            if first:
                wait_until(first, "what comes first has happened")

            def has_ended():
                if done.done():
                    return True
                # No further than a busy server can follow.
                assert self.service.get("/healthz").status == 200
                self.clock.advance(STEP_SECONDS)

            wait_until(has_ended, "the command has ended", 120)
        self.seconds = self.clock.monotonic() - begun
        return done.result()

    def __call__(self, *arguments, code=OK, text=None):
        """Runs a command and holds it to its exit code; a failure says why, in one place."""
        done = (self.run_in_steps if self.clock else self.run)(*arguments, text=text)
        assert done.returncode == code, (arguments, done)
        assert code == OK or done.stderr, (arguments, done)
        assert "panicked" not in done.stderr, done
        return done

    def json(self, *arguments, code=OK, **more):
        return json.loads(self(*arguments, "-o", "json", code=code, **more).stdout)


@pytest.fixture
def shell(server, folder):
    return Shell(server, folder)


def test_a_policy_from_making_to_removing(shell, server, ns):
    name, client = f"of-{ns.name}", server.client()
    flags = ["--unit", "requests", "--rate", "0.001", "--burst", "2.5", "--per", "caller"]
    made = shell.json("quota", "set", name, *flags, "--match", f"namespace={ns.name}")
    assert made["after"]["burst"] == 2.5 and "before" not in made
    assert client.get(f"{QUOTAS}/{name}").json()["version"] == made["version"]
    assert until_rejected(lambda: ns.get("a"), 4)[0] == 3, "it is in effect"
    shown = shell.json("quota", "get", name)
    assert shown["source"] == "stored" and shown["policy"] == made["after"]
    dry = shell.json("quota", "set", name, "--burst", "9", "--dry-run")
    assert dry["dry_run"] is True and dry["after"]["burst"] == 9
    assert shell.json("quota", "get", name) == client.get(f"{QUOTAS}/{name}").json()
    changed = shell.json(
        "quota", "set", name, "--status", "419", "--override", "caller=big,rate=5,burst=7"
    )
    assert changed["after"]["overrides"] == [{"match": {"caller": "big"}, "rate": 5, "burst": 7}]
    assert changed["after"]["burst"] == 2.5, "what is not named stays"
    assert ns.get("a").status == 419
    listed = shell.json("quota", "ls")
    assert {one["policy"]["name"] for one in listed} == set(names(client))
    (user,) = shell.json("quota", "users", name)
    assert user["label"] == "caller=anonymous" and user["rejected"] == 2
    gone = shell.json("quota", "rm", name, "--dry-run")
    assert gone["dry_run"] is True and name in names(client)
    assert shell.json("quota", "rm", name)["before"]["status"] == 419
    assert name not in names(client) and ns.get("a").status == 404


def test_every_form_of_output(shell, server, ns):
    name = f"of-{ns.name}"
    put_policy(server.client(), policy(name, 10, per=["caller"], match={"namespace": ns.name}))
    ns.get("a")
    for arguments, row in [
        (("ls",), rf"{name} +stored +\d+ +requests +10 +10 +caller +namespace={ns.name} "),
        (("get", name), rf"{name} +stored "),
        (("users", name), r"caller=anonymous +requests +10 +10 +\S+ "),
        (("usage", ns.name), r"anonymous +get +1 +0 +\S+ "),
        (("explain", ns.name, "get", "a"), r"\d"),
        (("simulate", name), r"USER +REQUESTS +REJECTED"),
    ]:
        table = shell("quota", *arguments).stdout
        assert re.search(f"^{row}|{row}", table, re.M), table
        assert json.loads(shell("quota", *arguments, "-o", "json").stdout)
        lines = shell("quota", *arguments, "-o", "ndjson").stdout.splitlines()
        assert all(isinstance(json.loads(line), dict) for line in lines), lines


def test_what_goes_wrong_has_its_exit_code(shell, closed, server, ns, folder):
    name = f"of-{ns.name}"
    put_policy(server.client(), policy(name, 10, per=["caller"]))
    shell("quota", "get", "nothing", code=NOT_FOUND)
    shell("quota", "rm", "nothing", code=NOT_FOUND)
    shell("quota", "users", "nothing", code=NOT_FOUND)
    shell("quota", "usage", "nowhere", code=NOT_FOUND)
    shell("quota", "rm", name, "--if-match", "1", code=PRECONDITION)
    shell("quota", "set", name, "--rate", "11", "--if-match", "1", code=PRECONDITION)
    for wrong in (["quota"], ["quota", "set"], ["quota", "set", "new"], ["quota", "set", "new", "--rate", "5"],
                  ["quota", "users", name, "--limit", "0"], ["quota", "simulate", name, "--last", "soon"]):  # fmt: skip
        shell(*wrong, code=USAGE)
    for flag, value, says in [
        ("--rate", "0", "rate"),
        ("--rate", "-1", "rate"),
        ("--rate", "many", "many"),
        ("--burst", "0.1", "burst"),
        ("--per", "galaxy", "galaxy"),
        ("--unit", "tokens", "tokens"),
        ("--status", "500", "500"),
        ("--mode", "maybe", "maybe"),
        ("--refill", "1ms", "1ms"),
    ]:
        done = subprocess.run(
            [binary(), "quota", "set", name, f"{flag}={value}"],
            env=shell.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode in (1, USAGE) and says in done.stderr, (flag, value, done)
    assert server.client().get(f"{QUOTAS}/{name}").json()["policy"]["rate"] == 10
    reader = Shell(closed.server, folder, closed.caller("reader", "read:*").token)
    reader("quota", "ls", code=NOT_ALLOWED)
    reader("quota", "set", "mine", "--unit", "ru", "--rate", "9", code=NOT_ALLOWED)
    Shell(closed.server, folder)("quota", "ls", code=NOT_ALLOWED)


def test_policies_of_a_file_are_stored_together_or_not_at_all(shell, server, ns, folder):
    names_of = [f"{letter}-{ns.name}" for letter in "ab"]
    entry = '[[policy]]\nname = "{}"\nunit = "requests"\nrate = 5\nmatch = {{ namespace = "n" }}\n'
    text = "".join(map(entry.format, names_of))
    (folder / "bad.toml").write_text(text + entry.format("c").replace("= 5", "= 0"))
    done = shell("quota", "set", "--file", "bad.toml", code=USAGE)
    assert "line 14" in done.stderr and "rate" in done.stderr
    assert not set(names_of) & set(names(server.client()))
    (folder / "good.toml").write_text(text)
    shell("quota", "set", "--file", "good.toml", "--dry-run")
    assert not set(names_of) & set(names(server.client()))
    changes = shell.json("quota", "set", "--file", "good.toml")
    assert [change["name"] for change in changes] == names_of
    assert set(names_of) <= set(names(server.client()))
    # What comes out is what goes in.
    out = shell("quota", "get", names_of[0], "--toml").stdout
    before = shell.json("quota", "get", names_of[0])["policy"]
    shell("quota", "rm", names_of[0])
    shell("quota", "set", "--file", "-", text=out)
    assert shell.json("quota", "get", names_of[0])["policy"] == before


def test_simulate_changes_nothing(shell, server, ns):
    for _ in range(30):
        ns.get("a")
    name = f"of-{ns.name}"
    flags = ["--unit", "requests", "--rate", "0.001", "--burst", "9.5", "--match", f"namespace={ns.name}"]
    # Usage is recorded when an interval of five seconds has ended.
    server.clock.advance(5)
    wait_until(
        lambda: shell.json("quota", "simulate", name, *flags)["requests"] == 30, "usage is recorded"
    )
    found = shell.json("quota", "simulate", name, *flags, "--last", "10m")
    assert 17 <= found["rejected"] <= 23 and found["rows"][0]["label"] == "everything"
    assert name not in names(server.client()) and not rejected(ns.get("a"))
    (shell.folder / "p.toml").write_text(
        f'[[policy]]\nname = "x"\nunit = "requests"\nrate = 1000000\nmatch = {{ namespace = "{ns.name}" }}\n'
    )
    assert shell.json("quota", "simulate", "--file", "p.toml")["rejected"] == 0


def test_a_command_waits_as_told_and_then_says_that_it_was_rejected(closed, folder):
    """A wait that fits into the time of the command is waited for; one that does not is exit code 5."""
    closed.namespace("shop")
    put_policy(closed.root, policy("slow", 2, burst=1, per=["caller"], match={"caller": "job"}))
    job = closed.caller("job", "read,write:shop")
    shell = Shell(closed.server, folder, job.token, closed.server.clock)

    def refused():
        return total(rows_of(usage(closed.root, "shop"), "job"), "rejected")

    for _ in range(3):
        assert until_rejected(lambda: Namespace(job, "shop").get("a"), 4)
        before = refused()
        done = shell.run_in_steps("kv", "get", "shop", "absent", first=lambda: refused() > before)
        assert done.returncode == NOT_FOUND and refused() == before + 1, done
    # A bucket of its own, in which nothing is kept for those who have not come back.
    assert closed.root.delete(f"{QUOTAS}/slow").status == 200
    put_policy(closed.root, policy("slower", only=2, per=["caller"], match={"caller": "job"}))
    assert until_rejected(lambda: Namespace(job, "shop").get("a"), 4)
    before = refused()
    done = shell("kv", "get", "shop", "absent", "--timeout", "2s", code=REJECTED)
    assert "slower" in done.stderr, "the policy is named"
    assert refused() == before + 1, "and it did not hammer"


def rows_file(path, count, size=200):
    lines = (json.dumps({"pk": f"p{n % 7}", "sk": f"{n:06}", "v": "v" * size}) for n in range(count))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_an_import_keeps_to_its_quota_and_no_row_fails(closed, folder):
    """5,000 rows at 1,500 rows a second, batch by batch: as slow as that, complete, and hardly rejected."""
    limit = {"per": ["caller"], "match": {"caller": "job"}, "unit": "writes"}
    put_policy(closed.root, policy("loads", 1_500, burst=1_500, **limit))
    token = closed.caller("job", "read,write,scan:cities").token
    closed.namespace("cities")
    shell = Shell(closed.server, folder, token, closed.server.clock)
    file = rows_file(folder / "rows.ndjson", 5_000)
    shell("kv", "import", "cities", str(file))
    # A batch may begin while anything is left: the last one is owed for.
    assert 5_000 <= 1_500 + 1_500 * shell.seconds + 2_000
    assert not (folder / "rows.ndjson.failed.ndjson").exists()
    report = rows_of(usage(closed.root, "cities"), "job", "batch-write")
    assert total(report, "rows") == 5_000
    assert total(report, "rejected") <= total(report, "requests"), "it paces itself"
    root = Namespace(closed.root, "cities")
    assert len(root.scan_all()) == 5_000


def test_what_failed_is_sent_again_under_a_quota_and_becomes_whole(closed, folder):
    """Rows that fail for themselves, put right in their file, sent again at the pace of a quota."""
    closed.namespace("cities")
    limit = {"per": ["caller"], "match": {"caller": "job"}, "unit": "writes"}
    put_policy(closed.root, policy("loads", 600, burst=600, **limit))
    token = closed.caller("job", "read,write:cities").token
    shell = Shell(closed.server, folder, token, closed.server.clock)
    file = rows_file(folder / "rows.ndjson", 2_000, 20)
    lines = file.read_text().splitlines()
    for at in range(0, 2_000, 2):
        lines[at] = json.dumps(json.loads(lines[at]) | {"if_match": "*"})
    file.write_text("\n".join([*lines, "no json"]) + "\n")
    shell("kv", "import", "cities", str(file), code=PARTIAL)
    failed = folder / "rows.ndjson.failed.ndjson"
    entries = [json.loads(line) for line in failed.read_text().splitlines()]
    assert len(entries) == 1_001
    reasons = {(one["failed"]["status"], one["failed"]["type"]) for one in entries}
    assert reasons == {(412, "/v1/errors/precondition-failed"), (400, "/v1/errors/invalid-body")}
    for one in entries:
        one.get("row", {}).pop("if_match", None)
    failed.write_text("\n".join(map(json.dumps, entries)) + "\n")
    shell("kv", "import", "cities", str(failed), code=PARTIAL)
    left = (folder / "rows.ndjson.failed.ndjson.failed.ndjson").read_text().splitlines()
    assert [json.loads(line)["text"] for line in left] == ["no json"]
    assert len(failed.read_text().splitlines()) == 1_001, "the first file stays as it is"
    assert len(Namespace(closed.root, "cities").scan_all()) == 2_000
    report = rows_of(usage(closed.root, "cities"), "job", "batch-write")
    assert total(report, "rows") == 3_000
