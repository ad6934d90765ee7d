"""A clock that a test owns: the processes that are given it see the time that the test says.

It runs as the machine's does until it is stopped; `advance` moves it forward in no time, whether it runs or not. A
test that stops it sees quotas that do not refill, answers that do not grow old and work that costs no time, however
slow the machine is. Timers of the processes fire when this clock passes their time.

Owns the file that clock.c reads; what a process does with the time is its own business.
"""

import mmap
import pathlib
import tempfile
import time

from preload import preloaded

SOURCE = pathlib.Path(__file__).with_name("clock.c")
NS = 1_000_000_000
# As in clock.c: a word with the number of the setting in effect, then settings of four words in turn.
WORD_LEN, WORDS, SETTINGS = 8, 4, 64
# From the order to stand still to the moment of it: longer than the order takes to be written, but for a pause.
LEAD_NS = NS // 1000


def of_machine():
    """Monotonic and wall time of the machine at one moment: of some looks the one that was interrupted least. What lay
    between the two would be a difference between the clocks from then on."""

    def look():
        before, wall_ns, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        return after - before, (before + after) // 2, wall_ns

    return min(look() for _ in range(8))[1:]


class Clock:
    """Wall and monotonic time of some processes."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="umbo-test-clock-")
        self.file.truncate(WORD_LEN * (1 + SETTINGS * WORDS))
        self.shared = mmap.mmap(self.file.fileno(), 0)
        self.words = memoryview(self.shared).cast("q")
        self.latest = self.wall_ns = self.monotonic_ns = self.stopped_ns = self.stopped_wall_ns = 0

    def environment(self):
        """What a process needs to live by this clock."""
        return {"LD_PRELOAD": preloaded(SOURCE), "TEST_CLOCK": self.file.name}

    def time(self):
        """Wall time in seconds, as the processes see it."""
        return ((self.stopped_wall_ns or time.time_ns()) + self.wall_ns) / NS

    def monotonic(self):
        """Monotonic time in seconds, as the processes see it."""
        return ((self.stopped_ns or time.monotonic_ns()) + self.monotonic_ns) / NS

    def advance(self, seconds):
        """Lets time pass."""
        self.wall_ns += round(seconds * NS)
        self.monotonic_ns += round(seconds * NS)
        self.write()

    def jump(self, seconds):
        """Sets the wall clock forward, or back; no time passes."""
        self.wall_ns += round(seconds * NS)
        self.write()

    def stop(self):
        """Lets time stand still, as far as the processes see. They are told of a moment to come. One that is over when
        they hear of it, because this process was paused meanwhile, would set them back, and what they did since would
        lie in their future; then they are told of a later one."""
        if self.stopped_ns:
            return
        while time.monotonic_ns() >= self.stopped_ns:
            # Both are told, so that no process has to take one from the other.
            monotonic_ns, wall_ns = of_machine()
            self.stopped_ns, self.stopped_wall_ns = monotonic_ns + LEAD_NS, wall_ns + LEAD_NS
            self.write()
        while time.monotonic_ns() < self.stopped_ns:
            pass

    def go(self):
        """Lets time run again, from where it stood still."""
        if self.stopped_ns:
            monotonic_ns, wall_ns = of_machine()
            self.wall_ns -= wall_ns - self.stopped_wall_ns
            self.monotonic_ns -= monotonic_ns - self.stopped_ns
            self.stopped_ns = self.stopped_wall_ns = 0
            self.write()

    def write(self):
        """Writes a setting beside the one in effect, then lets it take effect with one store of a word: `struct` would
        clear the word before, and who looks then would go by another setting."""
        self.latest += 1
        place = 1 + self.latest % SETTINGS * WORDS
        setting = self.wall_ns, self.monotonic_ns, self.stopped_ns, self.stopped_wall_ns
        for at, word in enumerate(setting, place):
            self.words[at] = word
        self.words[0] = self.latest

    def close(self):
        self.words.release()
        self.shared.close()
        self.file.close()
