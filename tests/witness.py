"""What a failed test cannot tell by itself: whether the machine stood still, and where the servers' threads are.

A test that waits for minutes fails on a machine that does nothing for as long, and so does one whose server hangs.
"""

import os
import pathlib
import threading
import time

TICK_SECONDS = 1
# A busy machine is late by less.
PAUSE_SECONDS = 10
PAUSES = []


def begin():
    threading.Thread(target=tick, daemon=True).start()


def tick():
    """Notes whenever this thread was not run for long."""
    last = time.monotonic()
    while True:
        time.sleep(TICK_SECONDS)
        now = time.monotonic()
        if now - last > PAUSE_SECONDS:
            PAUSES.append(f"{time.strftime('%H:%M:%S')}: nothing ran for {now - last:.0f} s")
        last = now


def seen():
    """Sections of a report."""
    sections = [("pauses of the machine", "\n".join(PAUSES))] if PAUSES else []
    return [*sections, ("threads of the processes", "\n".join(threads()))]


def threads():
    """A line for each thread of the processes that this one has started: its state, and where it waits in the kernel."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int(stat(process)[1])
            if parent != os.getpid():
                continue
            for thread in sorted((process / "task").iterdir()):
                name = (thread / "comm").read_text().strip()
                state, user, system = stat(thread)[0], *stat(thread)[11:13]
                waits = (thread / "wchan").read_text()
                yield f"{process.name} {name}: {state}, {user} + {system} ticks, {waits}"
        except (OSError, IndexError):
            # It has ended.
            continue


def stat(folder):
    """The fields of a thread or process from its state on."""
    return (folder / "stat").read_text().rpartition(")")[2].split()
