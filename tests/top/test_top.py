"""`umbo top` on a terminal: tabs, order, filter, the servers of a fleet, and the terminal as it was."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest

from harness import Cluster, binary, memory_folder
from processes import WAIT_SECONDS, wait_until


class Terminal:
    """`umbo top` on a terminal of its own."""

    def __init__(self, *arguments, columns=160, lines=40):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.modes = termios.tcgetattr(slave)
        self.slave, self.text = slave, ""
        command = [binary(), "top", "--interval", "100ms", *arguments]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.slave)
        os.close(self.master)

    def wait_for(self, *parts):
        """Reads until one of the last frames has all parts; returns its lines."""

        def found():
            while select.select([self.master], [], [], 0)[0]:
                self.text = (self.text + os.read(self.master, 65_536).decode(errors="replace"))[-100_000:]
            assert self.process.poll() is None, (parts, self.text[-3_000:])
            # What follows the last mark may be a part of a frame.
            frames = self.text.split("\x1b[H")[:-1]
            return next((frame for frame in frames[-2:] if all(part in frame for part in parts)), None)

        try:
            frame = wait_until(found, f"a frame has {parts}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.text[-3_000:]}") from None
        return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip("\r") for line in frame.split("\r\n")]

    def end(self):
        """Ends it; returns the exit code, and checks that the terminal is as it was."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(WAIT_SECONDS)
        assert termios.tcgetattr(self.slave) == self.modes
        return code


@pytest.fixture(scope="module")
def fleet():
    """Two dispatchers of one cluster, with a policy."""
    with memory_folder() as path:
        cluster = Cluster(path, dispatchers=2)
        try:
            cluster.start()
            client = cluster.dispatchers[0].client()
            cluster.dispatchers[0].namespace("demo")
            policy = {"name": "crawlers", "match": {"caller": "anonymous"}, "unit": "requests", "rate": "9000", "burst": "9000"}
            assert client.put("/admin/v1/quotas/crawlers", json.dumps(policy)).status == 201
            for at in range(50):
                client.get(f"/v1/ns/demo/kv/{at}")
            client.close()
            yield [f"http://127.0.0.1:{one.port}" for one in cluster.dispatchers]
            cluster.stop()
        finally:
            cluster.discard()


@pytest.mark.parametrize(
    "tab, column",
    [
        ("overview", "CALLER"),
        ("callers", "CALLER"),
        ("hot", "NAMESPACE"),
        ("shards", "QUEUED"),
        ("quotas", "UTILISATION"),
        ("overload", "PRESSURE"),
    ],
)
def test_each_tab_is_shown_under_the_address_of_its_server(fleet, tab, column):
    with Terminal("--server", fleet[0], "--tab", tab) as top:
        shown = top.wait_for("requests ", column)
        assert shown[0] == fleet[0], shown
        assert top.end() == 0


def test_rows_are_in_the_order_asked_for_and_filtered(fleet):
    with Terminal("--server", fleet[0], "--tab", "shards", "--sort", "shard") as top:
        shown = top.wait_for("available")
        assert shown[4].split()[0] == "11", shown
        assert top.end() == 0
    with Terminal("--server", fleet[0], "--tab", "shards", "--sort", "SHARD", "--reverse") as top:
        shown = top.wait_for("available")
        assert shown[4].split()[0] == "0", shown
        assert top.end() == 0
    with Terminal("--server", fleet[0], "--tab", "quotas", "--filter", "DEFAULT") as top:
        shown = top.wait_for("default-caller")
        assert not any("crawlers" in line for line in shown), shown
        assert top.end() == 0


def test_the_dispatchers_of_a_fleet_are_below_each_other(fleet):
    first, second = fleet
    with Terminal("--server", first, "--dispatcher", second, "--tab", "shards", lines=30) as top:
        shown = top.wait_for(first, second, "SHARD")
        assert (shown[0], shown[15]) == (first, second), shown
        assert len(shown) <= 30 and sum(line.startswith("SHARD") for line in shown) == 2, shown
        assert top.end() == 0


def test_a_small_terminal_is_not_exceeded(fleet):
    with Terminal("--server", fleet[0], "--tab", "shards", columns=40, lines=6) as top:
        shown = top.wait_for("SHARD")
        assert len(shown) <= 6 and max(len(line) for line in shown) <= 40, shown
        assert top.end() == 0


def test_one_frame_of_a_tab_without_a_terminal(fleet):
    def once(*arguments):
        command = [binary(), "--server", fleet[0], "top", "--once", "--interval", "100ms", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    quotas = once("--tab", "quotas", "--filter", "crawl").stdout.splitlines()
    assert quotas[2].startswith("POLICY") and len(quotas) == 4, quotas
    shards = json.loads(once("-o", "json").stdout)
    assert len(shards["shards"]) == 12 and shards["shards"][0]["overload"]["pressure"] == 0
    assert {one["policy"] for one in shards["policies"]} == {"crawlers", "default-caller"}
    assert once("--tab", "nothing").returncode == 2
    unknown = once("--tab", "quotas", "--sort", "queued")
    assert unknown.returncode == 2 and "POLICY, UTILISATION" in unknown.stderr, unknown.stderr


def test_a_server_that_is_away_at_first_is_told_and_one_later_is_shown(fleet):
    away = subprocess.run(
        [binary(), "--server", "127.0.0.1:1", "--timeout", "1s", "top", "--once"], capture_output=True, timeout=60
    )
    assert away.returncode == 6
    with Terminal("--server", fleet[0], "--dispatcher", "http://127.0.0.1:1", "--timeout", "1s") as top:
        shown = top.wait_for("requests ", "trying again")
        assert shown[0] == fleet[0] and any(line.startswith("http://127.0.0.1:1: ") for line in shown), shown
        assert top.end() == 0
