"""`umbo hot` and `umbo top`: what they print, what they change, and what they end with."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios

import pytest

from harness import binary, wait_until
from hot import READS, WARM, blocked, heated, is_hit, keys_of, make_token, read

OK, FAILED, USAGE, NOT_FOUND, NOT_ALLOWED = 0, 1, 2, 3, 8
# Seconds of a frame of `umbo top --once`, how often the detector looks meanwhile, and reads in that time.
SECONDS_OF_FRAME = 4
LOOKS_OF_FRAME = 10
READS_OF_FRAME = LOOKS_OF_FRAME * READS


def environment(server, token=None):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}
    tokens = {"UMBO_TOKEN": token} if token else {}
    return clean | {"UMBO_SERVER": f"http://127.0.0.1:{server.port}", "TERM": "xterm"} | tokens


class Shell:
    """Runs `umbo` against a server."""

    def __init__(self, server, token=None):
        self.environment = environment(server, token)

    def __call__(self, *arguments, code=OK):
        done = subprocess.run(
            [binary(), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, (arguments, done)
        assert code == OK or done.stderr, (arguments, done)
        assert "panicked" not in done.stderr, done
        return done

    def json(self, *arguments):
        return json.loads(self(*arguments, "-o", "json").stdout)


@pytest.fixture
def shell(server):
    return Shell(server)


def test_a_key_from_blocking_to_unblocking(server, shell, ns):
    ns.put("a", "s", b"v")
    table = shell("hot", "block", ns.name, "a", "s", "--reason", "broken crawler").stdout
    header, line = table.splitlines()
    assert header.split() == "NAMESPACE PK SK KIND STANDING BY SINCE UNTIL REASON".split()
    assert line.split()[:6] == [ns.name, "a", "s", "row", "blocked", "anonymous"]
    assert line.endswith("broken crawler")
    blocked(ns.get("a", "s"))
    again = shell("hot", "block", ns.name, "a", "s", "--reason", "broken crawler")
    assert "blocked already" in again.stderr
    other = shell("hot", "block", ns.name, "a", "s", "--ttl", "1h", code=FAILED)
    assert "Key already listed (409)" in other.stderr and "--update" in other.stderr
    # No two changes are of the same millisecond.
    server.clock.advance(1)
    shell("hot", "block", ns.name, "a", "s", "--ttl", "1h", "--update")
    shown = shell.json("hot", "ls", "--listed")
    (key,) = [key for key in shown["keys"] if key["namespace"] == ns.name]
    assert key["blocked"]["until"] - key["blocked"]["at"] == 3_600_000
    shell("hot", "unblock", ns.name, "a", "s")
    assert ns.get("a", "s").body == b"v"
    gone = shell("hot", "unblock", ns.name, "a", "s", code=NOT_FOUND)
    assert "not blocked" in gone.stderr


def test_a_key_is_pinned_by_its_id_and_in_any_form(shell, ns):
    ns.put(b"\x00\xff", value=b"v")
    said = shell.json("hot", "pin", ns.name, "0x00ff")
    assert said["pk64"] == "AP8" and said["standing"] == "pinned"
    ns.get(b"\x00\xff")
    assert is_hit(ns.get(b"\x00\xff"))
    shell("hot", "unpin", "--id", said["id"])
    assert keys_of(ns.client, ns) == []
    shell("hot", "pin", "--id", said["id"])
    rows = [json.loads(line) for line in shell("hot", "ls", "-o", "ndjson").stdout.splitlines()]
    assert said["id"] in [row["id"] for row in rows]
    table = shell("hot", "ls").stdout
    (line,) = [line for line in table.splitlines() if line.startswith(ns.name + " ")]
    assert "0x00ff" in line and line.split()[-1] == said["id"]
    blocking = shell("hot", "block", "--id", said["id"])
    assert blocking.stdout.splitlines()[1].split()[4] == "blocked"
    pinning = shell("hot", "pin", ns.name, "0x00ff", "--update")
    assert "also blocked" in pinning.stderr


def test_what_is_hot_is_listed_with_who_reads_it(server, shell, ns):
    heated(server, ns, lambda: ns.get("hot"))
    read(lambda: ns.get("hot"), server)
    shown = shell("hot", "ls")
    line = next(line for line in shown.stdout.splitlines() if line.startswith(ns.name + " "))
    assert "hot from" in shown.stderr and "from the cache" in shown.stderr
    assert "anonymous 100%" in line and line.split()[4] == "hot"


@pytest.mark.parametrize(
    "arguments",
    [
        ["hot", "block"],
        ["hot", "block", "n"],
        ["hot", "block", "n", ""],
        ["hot", "block", "n", "a", "--id", "AQ"],
        ["hot", "pin", "n", "a", "--ttl", "0s"],
        ["hot", "unpin", "n", "a", "--ttl", "1h"],
        ["top", "--interval", "1ms"],
        ["top"],
    ],
)
def test_what_makes_no_sense_is_refused(shell, arguments):
    shell(*arguments, code=USAGE)


def test_what_the_server_refuses_has_the_exit_code_of_its_kind(shell, ns):
    shell("hot", "block", "nowhere", "a", code=NOT_FOUND)
    shell("hot", "unpin", ns.name, "a", code=NOT_FOUND)
    shell("hot", "block", "--id", "nonsense", code=FAILED)


def test_with_the_layer_off_the_commands_say_so(new_server):
    server = new_server({"hotkey": {"enabled": False}}).start()
    shell = Shell(server)
    assert "hotkey.enabled" in shell("hot", "ls", code=FAILED).stderr
    frame = shell("top", "--once", "--interval", "100ms").stdout
    assert "hot keys are off" in frame
    assert "hot" not in shell.json("top", "--once", "--interval", "100ms")


def one_frame(server, *arguments, ask):
    """What `umbo top --once` prints of an interval in which a server was asked READS_OF_FRAME times, by the clock of both.

    The interval ends with the last second that the history has, which is the one after the reads.
    """
    # What was read before is no part of the interval.
    seconds_pass(server, SECONDS_OF_FRAME)
    for _ in range(LOOKS_OF_FRAME):
        read(ask, server)
    seconds_pass(server, 2)
    command = [binary(), "top", "--once", "--interval", f"{SECONDS_OF_FRAME}s", *arguments]
    seen = environment(server) | server.clock.environment()
    return subprocess.run(command, env=seen, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


def seconds_pass(server, seconds):
    """Lets seconds pass by the server's clock, each recorded in its history."""

    def end():
        client = server.client()
        report = client.get("/admin/v1/history?range=5m&series=connections").json()
        client.close()
        return report["start_ms"] + report["step_ms"] * max((len(one["values"]) for one in report["series"]), default=0)

    for _ in range(seconds):
        before = end()

        def is_recorded():
            server.clock.advance(0.1)
            return end() > before

        wait_until(is_recorded, "a second is recorded")


def test_one_frame_shows_keys_callers_and_shards(server, ns):
    ns.put("hot", value=b"v")
    ask = lambda: ns.get("hot")
    heated(server, ns, ask)
    frame = json.loads(one_frame(server, "-o", "json", ask=ask))
    text = one_frame(server, ask=ask)
    assert frame["seconds"] == SECONDS_OF_FRAME
    pod = frame["pod"]
    assert pod["requests_rate"] * frame["seconds"] == pytest.approx(READS_OF_FRAME), frame
    # The key is hot again after the first of them.
    assert READS_OF_FRAME / 2 < pod["saved_rate"] * frame["seconds"] <= READS_OF_FRAME, frame
    assert pod["rejected_rate"] == pod["shed_rate"] == 0
    assert 0 < pod["p50_ms"] <= pod["p99_ms"]
    assert pod["connections"] >= 1
    (key,) = [key for key in frame["hot_keys"] if key["namespace"] == ns.name]
    assert key["pk"] == "hot" and key["rate_now"] > 50
    assert frame["callers"][0]["caller"] == "anonymous" and frame["callers"][0]["ru_rate"] > 1
    shards = server.client().get("/admin/v1/shards").json()["shards"]
    assert [shard["shard"] for shard in frame["shards"]] == [shard["shard"] for shard in shards]
    assert all(shard["state"] == "available" for shard in frame["shards"])
    for part in ("requests ", "rejected ", "p99 ", "hot keys: ", "READS/S", "CALLER", "SHARD"):
        assert part in text, text
    assert any(line.startswith(ns.name) and "anonymous 100%" in line for line in text.splitlines())
    assert "\x1b" not in text


def test_shards_show_where_the_requests_go(server, ns):
    frame = json.loads(one_frame(server, "-o", "json", ask=lambda: ns.get("a", Cache_Control="no-cache")))
    busiest = max(frame["shards"], key=lambda shard: shard["requests_rate"])
    assert busiest["requests_rate"] * frame["seconds"] == pytest.approx(READS_OF_FRAME), frame
    assert busiest["ru_rate"] > busiest["requests_rate"]


def test_frames_go_on_as_lines_until_they_are_ended(server, ns):
    command = [binary(), "top", "-o", "ndjson", "--interval", "100ms"]
    top = subprocess.Popen(command, env=environment(server), stdout=subprocess.PIPE)
    try:
        frames = [json.loads(top.stdout.readline()) for _ in range(3)]
    finally:
        top.kill()
        top.wait()
        top.stdout.close()
    assert all("pod" in frame for frame in frames)


def test_top_needs_a_grant_and_a_server(new_server):
    server = new_server(WARM).start()
    token = make_token(server.client(), "root", "*:*")
    reader = make_token(server.client(token=token), "reader", "read:*")
    Shell(server, reader)("top", "--once", code=NOT_ALLOWED)
    Shell(server, reader)("hot", "ls", code=NOT_ALLOWED)
    Shell(server, token)("top", "--once", "--interval", "100ms")
    server.stop()
    Shell(server, token)("top", "--once", "--timeout", "2s", code=6)


class Terminal:
    """`umbo top` on a terminal of its own."""

    def __init__(self, server, lines=24, columns=80):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [binary(), "top", "--interval", "100ms"],
            env=environment(server),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def read(self):
        while select.select([self.master], [], [], 0.05)[0]:
            self.seen += os.read(self.master, 1 << 16)
        return self.seen

    def type(self, keys):
        os.write(self.master, keys)

    def ended(self):
        """Waits for a good end; the terminal is as it was."""
        wait_until(lambda: self.read() and self.process.poll() is not None, "it has ended")
        assert self.process.returncode == 0, self.seen
        assert self.read().endswith(b"\x1b[?25h\x1b[?1049l"), self.seen[-200:]
        assert termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(server):
    terminal = Terminal(server)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("end", [b"\x03", signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_given_back_however_it_ends(terminal, end):
    wait_until(lambda: terminal.read().count(b"SHARD") >= 3, "frames are drawn")
    assert terminal.seen.startswith(b"\x1b[?1049h\x1b[?25l")
    if isinstance(end, bytes):
        terminal.type(end)
    else:
        os.kill(terminal.process.pid, end)
    terminal.ended()


def test_keys_do_nothing_and_no_line_is_wider_than_the_terminal(terminal):
    wait_until(lambda: b"SHARD" in terminal.read(), "a frame is drawn")
    terminal.type(b"xyz\r\n")
    seen = len(terminal.read())
    wait_until(lambda: len(terminal.read()) > seen + 500, "it goes on")
    assert terminal.process.poll() is None
    # What the terminal echoes of the keys comes after the end of a frame.
    frame = terminal.seen.split(b"\x1b[H")[-2].split(b"\x1b[J")[0].decode()
    lines = [line.split("\x1b")[0] for line in frame.split("\r\n")]
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines), lines
    terminal.type(b"\x03")
    terminal.ended()


def test_a_server_that_restarts_is_waited_for(new_server):
    server = new_server(WARM).start()
    # As wide as the line that says why there is no frame.
    terminal = Terminal(server, columns=400)
    try:
        wait_until(lambda: b"SHARD" in terminal.read(), "a frame is drawn")
        server.arguments = ["--listen", f"127.0.0.1:{server.port}", "--admin-listen", "127.0.0.1:0"]
        server.kill()
        wait_until(lambda: b"trying again" in terminal.read(), "it has noticed")
        server.start()
        seen = len(terminal.read())
        wait_until(lambda: b"SHARD" in terminal.read()[seen:], "it goes on")
        terminal.type(b"\x03")
        terminal.ended()
    finally:
        terminal.close()
