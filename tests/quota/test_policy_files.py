"""Policies that stand in a file: read at the start, again at SIGHUP and when the file changes."""

import json
import signal
import subprocess

import pytest

from harness import PROJECT, Namespace, Server, binary, memory_folder, wait_until
from quotas import QUOTAS, micros, names, policy, put_policy, rejected, started, until_rejected


SMALL = policy("small", per=["caller"], only=3)


def write(file, *policies):
    """Writes policies as a person would."""
    text = ""
    for body in policies:
        text += "[[policy]]\n"
        for field, value in body.items():
            if field == "match":
                pairs = ", ".join(f"{name} = {json.dumps(value[name])}" for name in value)
                text += f"match = {{ {pairs} }}\n"
            elif field != "overrides":
                text += f"{field} = {json.dumps(value)}\n"
        for one in body.get("overrides", []):
            (pair,) = one["match"].items()
            text += f'[[policy.overrides]]\nmatch = {{ {pair[0]} = "{pair[1]}" }}\n'
            text += f"rate = {one['rate']}\nburst = {one['burst']}\n"
    file.write_text(text)


@pytest.fixture
def filed(new_server, folder):
    """A server with a policy file, and the file."""
    file = folder / "quotas.toml"
    write(file, SMALL)
    return new_server({"quota": {"policy_file": str(file)}}), file


def reload(server, word='"reloaded the policy file"'):
    """SIGHUP, and what it led to."""
    seen = server.log_text().count(word)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log_text().count(word) > seen, word)


def test_a_file_is_in_effect_from_the_first_request(filed):
    server, file = filed
    started(server)
    ns = server.namespace()
    served, answer = until_rejected(lambda: ns.get("a"), 4)
    assert served == 3 and answer.json()["policy"] == "small"
    shown = ns.client.get(f"{QUOTAS}/small")
    assert shown.json()["source"] == "file" and "etag" not in shown.headers


def test_a_file_is_changed_in_the_file_only(filed):
    server, file = filed
    started(server)
    client = server.client()
    changed = client.put(f"{QUOTAS}/small", json.dumps(policy("small", 9)))
    assert "file" in changed.problem(409, "quota-of-file")["detail"]
    client.delete(f"{QUOTAS}/small").problem(409, "quota-of-file")
    client.delete(f"{QUOTAS}/small?dry_run=true").problem(409, "quota-of-file")
    assert names(client)["small"] == "file"


def test_sighup_takes_up_the_file(filed):
    server, file = filed
    started(server)
    ns, client = server.namespace(), server.client()
    assert until_rejected(lambda: ns.get("a"), 4)[0] == 3
    override = {"match": {"caller": "big"}, "rate": 1, "burst": 9}
    write(file, policy("small", per=["caller"], only=5, overrides=[override]), policy("other"))
    reload(server)
    assert names(client) == {"default-caller": "built-in", "small": "file", "other": "file"}
    assert rejected(ns.get("a")), "what was spent is spent"
    write(file)
    reload(server)
    assert names(client) == {"default-caller": "built-in"}
    assert not any(rejected(ns.get("a")) for _ in range(10))
    assert server.client().put(f"{QUOTAS}/small", json.dumps(policy("small", 5))).status == 201


def test_a_changed_file_is_noticed(filed):
    server, file = filed
    started(server)
    write(file, policy("small", per=["caller"], only=3), policy("noticed", 1000))
    server.clock.advance(LOOK_SECONDS)
    wait_until(lambda: "noticed" in names(server.client()), "the change is noticed")


# How often a server looks at its files.
LOOK_SECONDS = 10

GOOD = '[[policy]]\nname = "a"\nper = ["caller"]\nunit = "requests"\nrate = 5\n'
BAD_FILES = {
    # What is in the file, and what is said of it.
    "no toml": ("[[policy", "line 1"),
    "unknown field": (GOOD.replace("unit", "units"), "did you mean `unit`?"),
    "unknown unit": (GOOD.replace("requests", "joules"), "line 4: 'a': unit"),
    "rate 0": ("\n\n" + GOOD.replace("5", "0"), "line 7: 'a': rate: a rate of 0"),
    "negative": (GOOD.replace("5", "-5"), "line 5: 'a': rate"),
    "overflow": (GOOD.replace("5", "99999999999999999999"), "line 5"),
    "nan": (GOOD.replace("5", "nan"), "line 5: 'a': rate"),
    "contradiction": (
        GOOD.replace("5", "1000\nburst = 1"),
        "line 6: 'a': burst: burst 1 is less than one refill: rate 1000 adds 50 in 50ms",
    ),
    "twice": (GOOD * 2, "two policies are named 'a'"),
    "too many": ("".join(GOOD.replace('"a"', f'"p{n}"') for n in range(300)), "301"),
    "a number": ("policy = 5", "line 1"),
    "no text": ("\0\1", "line 1"),
    "gone": (None, "No such file"),
}


@pytest.fixture(scope="module")
def running():
    """A server that bad files do not change, and its file."""
    with memory_folder() as folder:
        file = folder / "quotas.toml"
        write(file, SMALL)
        with Server(folder, {"quota": {"policy_file": str(file)}}) as server:
            put_policy(started(server).client(), policy("stored", 1000))
            yield server, file


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_bad_file_is_named_with_its_place_and_the_running_ones_stay(running, what):
    text, expected = BAD_FILES[what]
    server, file = running
    ns, client = server.namespace(), server.client()
    own = {"Umbo_Quota_User": what.replace(" ", "-")}
    before, errors = client.get(QUOTAS).json(), len(server.logged("ERROR"))
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    reload(server, "cannot reload the policy file; nothing has changed")
    (line,) = [line for line in server.logged("ERROR")[errors:] if "policy file" in line]
    assert expected in json.loads(line)["error"] and "quotas.toml" in line, line
    after = client.get(QUOTAS).json()
    assert [each["policy"] for each in after["policies"]] == [
        each["policy"] for each in before["policies"]
    ]
    assert until_rejected(lambda: ns.get("a", **own), 4)[0] == 3
    for body in (policy("small", per=["caller"], burst=50), SMALL):
        write(file, body)
        reload(server)
        assert client.get(f"{QUOTAS}/small").json()["policy"]["burst"] == body["burst"]


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_server_does_not_start_with_a_bad_file(filed, what):
    text, expected = BAD_FILES[what]
    server, file = filed
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    # Before any shard node is asked for anything.
    server.owns_tier = False
    server.launch()
    assert server.wait() == 1
    assert expected in server.log_text() and "quotas.toml" in server.log_text()
    assert not server.data.exists(), "nothing is touched before the file is known to be good"


def test_the_file_counts_before_the_store(filed):
    server, file = filed
    write(file)
    started(server)
    client = server.client()
    stored = put_policy(client, policy("both", 5))
    write(file, policy("both", 7))
    reload(server)
    assert names(client)["both"] == "file"
    assert client.get(f"{QUOTAS}/both").json()["policy"]["rate"] == 7
    server.kill()
    started(server)
    assert names(server.client())["both"] == "file"
    write(file)
    reload(server)
    shown = server.client().get(f"{QUOTAS}/both")
    assert shown.json()["policy"]["rate"] == 5
    assert shown.headers["etag"] == stored.headers["etag"], "what it covered is back"


def test_fifty_reloads_in_a_row(filed):
    """As fast as they can be told; the last file counts, and no request is dropped."""
    server, file = filed
    started(server)
    ns = server.namespace()
    for number in range(50):
        write(file, policy("small", per=["caller"], only=3), policy(f"n{number}", 1_000_000))
        server.process.send_signal(signal.SIGHUP)
        assert ns.get("a").status in (404, 429)
    wait_until(lambda: "n49" in names(server.client()), "the last one is in effect")
    assert len(names(server.client())) == 3
    assert ns.get("a").status == 429 and not server.logged("ERROR")


def test_the_example_can_be_used(new_server, folder):
    example = PROJECT / "config/quotas.toml"
    server = started(new_server({"quota": {"policy_file": str(example)}}))
    found = names(server.client())
    assert found["default-caller"] == "file" and len(found) > 3
    assert server.namespace("listings").put("a", value=b"x").status == 201
    assert "ratelimit" in Namespace(server.client(), "listings").get("a").headers


def test_a_configuration_is_checked_with_its_policies(folder):
    file, config = folder / "quotas.toml", folder / "umbo.toml"
    config.write_text(f"[quota]\npolicy_file = {json.dumps(str(file))}\n")

    def check():
        command = [binary(), "config", "check", str(config)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    write(file, policy("good", 5))
    done = check()
    assert done.returncode == 0 and "policies: 1" in done.stdout, done
    write(file, policy("good", 5), policy("bad", 0))
    done = check()
    assert done.returncode == 1 and "line 8: 'bad': rate: a rate of 0" in done.stderr, done


def test_the_flag_names_a_file_and_the_environment_sets_prices(new_server, folder):
    server = new_server(
        arguments=["--quota-file", "flagged.toml"],
        environment={"UMBO__COST__WRITE_BASE": "0.5", "UMBO__COST__LATENCY_MS": "0"},
    )
    write(folder / "flagged.toml", policy("flagged", 3))
    started(server)
    assert names(server.client())["flagged"] == "file"
    shown = server.admin().get("/admin/v1/config").body.decode()
    assert 'policy_file = "flagged.toml"' in shown and "# --quota-file" in shown
    assert micros(server.namespace().put("a").headers["umbo-ru"]) == 550_000
