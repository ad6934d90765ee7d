"""The clock of the tests themselves: however late the order to stand still comes, it sets no process back."""

import os
import subprocess
import sys
import time

import clock

# Reads the time all the while; at each line that comes, prints the latest time that it saw before, and the time now.
READER = """
import select, sys, time
latest = 0
while True:
    latest = max(latest, time.monotonic_ns())
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        print(latest, time.monotonic_ns(), flush=True)
"""


def test_time_stands_still_no_earlier_than_any_process_has_seen():
    ours = clock.Clock()
    command, environment = [sys.executable, "-c", READER], os.environ | ours.environment()
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        for _ in range(500):
            ours.stop()
            print(file=reader.stdin, flush=True)
            latest, stands = map(int, reader.stdout.readline().split())
            assert latest <= stands == ours.stopped_ns + ours.monotonic_ns
            ours.go()


def test_an_order_to_stand_still_that_is_late_is_given_again(monkeypatch):
    look, looks = clock.of_machine, []

    def late():
        seen = look()
        looks.append(seen)
        # A pause between the look and the order.
        while len(looks) < 3 and time.monotonic_ns() < seen[0] + 10 * clock.LEAD_NS:
            pass
        return seen

    monkeypatch.setattr(clock, "of_machine", late)
    ours = clock.Clock()
    ours.stop()
    assert len(looks) == 3
    assert ours.stopped_ns == looks[-1][0] + clock.LEAD_NS
    assert ours.monotonic() == ours.stopped_ns / clock.NS


# Looks at the number of the setting in effect all the while; prints by how much it ever went down.
LOOKER = """
import mmap, select, sys
file = open(sys.argv[1], "rb")
words = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("q")
latest = down = 0
print(flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(1000):
        now = words[0]
        down, latest = max(down, latest - now), now
print(down)
"""


def test_no_process_ever_goes_by_an_earlier_setting():
    ours = clock.Clock()
    command = [sys.executable, "-c", LOOKER, ours.file.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as looker:
        looker.stdout.readline()
        for _ in range(100_000):
            ours.write()
        assert looker.communicate()[0] == "0\n"
