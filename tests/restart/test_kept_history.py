"""The history of a server outlives it: all of it after a stop, all but a minute after a kill."""

import pytest

from bulk import step_until
from harness import wait_until

# Seconds between two writes of the history's files.
WRITE_INTERVAL = 60
# Shorter than a step of the history, and than what one sample may stand for.
PACE = 5

pytestmark = pytest.mark.embedded("a dispatcher keeps its history in memory only")


def recorded(server, length="1h"):
    """Requests a second of puts by the time of the step."""
    answer = server.admin().get(f"/admin/v1/history?range={length}&series=served")
    report = answer.json()
    puts = [one["values"] for one in report["series"] if one["labels"] == {"operation": "put"}]
    steps = enumerate(puts[0] if puts else [])
    step = report["step_ms"]
    return {report["start_ms"] + at * step: value for at, value in steps if value is not None}


def put_until(server, ns, is_so, what):
    """Puts some rows every few seconds of the server's time."""

    def look():
        for number in range(20):
            ns.put(f"p{number}", value=b"v")
        return is_so()

    step_until(server.clock, look, what, step=PACE)


def kinds(server):
    return [one["kind"] for one in server.admin().get("/admin/v1/events").json()["events"]]


def test_a_stop_loses_nothing(new_server):
    server = new_server().start()
    ns = server.namespace("kept")
    put_until(server, ns, lambda: sum(value > 0 for value in recorded(server).values()) >= 3, "three steps are recorded")
    before = recorded(server)
    # More is counted into the newest step until it is over.
    del before[max(before)]
    server.stop()
    down = server.clock.time() * 1000
    server.clock.advance(WRITE_INTERVAL)
    server.start()
    up = server.clock.time() * 1000
    after = recorded(server)
    assert {at: after.get(at) for at in before} == before
    assert not [at for at in after if down < at < up - 20_000], "nothing is made up for the time in between"
    assert kinds(server)[:3] == ["started", "namespace-created", "stopping"]
    assert kinds(server)[-1] == "started"


def test_a_kill_loses_a_minute_at_most_and_a_damaged_file_is_set_aside(new_server):
    server = new_server().start()
    ns = server.namespace("kept")
    end = server.clock.monotonic() + WRITE_INTERVAL + 15
    written = lambda: any((server.data / "history").glob("1-*.history"))
    put_until(server, ns, lambda: server.clock.monotonic() > end and written(), "a minute is written, and more passes")
    # Nothing is recorded any more.
    server.clock.stop()
    before = recorded(server)
    server.kill()
    killed = server.clock.time() * 1000
    server.clock.go()
    server.start()
    kept = {at: value for at, value in recorded(server).items() if at in before}
    assert kept == {at: value for at, value in before.items() if at in kept}
    lost = [at for at, value in before.items() if at not in kept and value > 0]
    assert kept and all(at > killed - (WRITE_INTERVAL + 15) * 1000 for at in lost)
    server.kill()
    files = sorted((server.data / "history").glob("1-*.history"))
    content = bytearray(files[-1].read_bytes())
    content[20] ^= 255
    files[-1].write_bytes(content + content)
    server.start()
    wait_until(lambda: "was set aside" in server.log_text(), "the log tells of the damaged file")
    assert (server.data / "history" / "1.damaged").exists()
    assert server.namespace("kept").get("p1").status == 200
    server.stop()
