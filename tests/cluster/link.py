"""A network of two hosts: this one, and a namespace of its own, joined by a wire that can be bad.

Owns the wire: it carries frames between two TAP devices and delays, loses or keeps them as told. No
part of the kernel that could be missing is needed for that. Needs root, like every namespace.
"""

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
NUMBERS = itertools.count(os.getpid() % 200)


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def tap(name):
    """Makes a device; what is sent on it is read from the file that is returned."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return file


class Link:
    """A namespace and the wire to it. `host` is its address, seen from here."""

    def __init__(self, seed=1):
        number = next(NUMBERS)
        self.name = f"umbo-test-{os.getpid()}-{number}"
        self.here, self.host = f"10.213.{number % 250}.1", f"10.213.{number % 250}.2"
        self.delay_seconds, self.loss_ratio, self.is_cut = 0.0, 0.0, False
        self.random = random.Random(seed)
        self.carried = self.lost = 0
        self.ends, self.wake, self.thread = [], os.pipe(), None

    def __enter__(self):
        near, far = f"umn{os.getpid() % 100_000}x{self.here.split('.')[2]}", "far0"
        ip("netns", "add", self.name)
        try:
            self.ends = [tap(near), tap(near + "f")]
            ip("link", "set", near + "f", "netns", self.name, "name", far)
            ip("addr", "add", f"{self.here}/30", "dev", near)
            ip("link", "set", near, "up")
            ip("-n", self.name, "addr", "add", f"{self.host}/30", "dev", far)
            ip("-n", self.name, "link", "set", far, "up")
            ip("-n", self.name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        if self.thread:
            os.write(self.wake[1], b"x")
            self.thread.join()
        for end in [*self.ends, *self.wake]:
            os.close(end)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)

    def prefix(self):
        """What makes a command run at the other end."""
        return ("ip", "netns", "exec", self.name)

    def carry(self):
        """Carries frames until it is told to stop."""
        waiting, order, patience = [], itertools.count(), None
        other = dict(zip(self.ends, reversed(self.ends)))
        while True:
            readable, _, _ = select.select([*self.ends, self.wake[0]], [], [], patience)
            if self.wake[0] in readable:
                return
            now = time.monotonic()
            for end in readable:
                with contextlib.suppress(BlockingIOError):
                    while frame := os.read(end, 1 << 16):
                        if self.is_cut or self.random.random() < self.loss_ratio:
                            self.lost += 1
                            continue
                        heapq.heappush(waiting, (now + self.delay_seconds, next(order), other[end], frame))
            while waiting and waiting[0][0] <= now:
                _, _, end, frame = heapq.heappop(waiting)
                # A device that is down, or full, loses it.
                with contextlib.suppress(OSError):
                    os.write(end, frame)
                    self.carried += 1
            patience = waiting[0][0] - now if waiting else None
