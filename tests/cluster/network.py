"""A network of several hosts: this machine, and namespaces of their own, joined by a switch that can be bad.

Owns the switch: it carries frames between TAP devices and delays, loses or keeps them as told. No part of the kernel
that could be missing is needed for that. Needs root, like every namespace.
"""

import contextlib
import fcntl
import heapq
import itertools
import os
import pathlib
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time

import pytest

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
TCP_SYN = 0x02
NUMBERS = itertools.count(os.getpid() % 200)
# This machine, among the hosts.
HERE = "here"


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def tap(name):
    """Makes a device; what is sent on it is read from the file that is returned."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return file


def may_be_made():
    """Skips a test on a machine that was told to make no namespaces."""
    if os.environ.get("UMBO_TESTS_NO_NETNS") == "1":
        pytest.skip("told to make no network namespaces (UMBO_TESTS_NO_NETNS)")


def sent_to(address, port, frames):
    """The bytes of the first TCP connection to a port (IPv4) that is begun in these frames."""
    pieces, begun = {}, None
    for frame in frames:
        packet = frame[14:]
        if frame[12:14] != b"\x08\x00" or packet[9] != socket.IPPROTO_TCP:
            continue
        segment = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4])]
        source, destination, sequence = struct.unpack_from("!HHI", segment)
        if (packet[16:20], destination) != (socket.inet_aton(address), port):
            continue
        if segment[13] & TCP_SYN and begun is None:
            begun = (source, sequence + 1)
        elif begun and begun[0] == source:
            pieces[sequence - begun[1]] = segment[(segment[12] >> 4) * 4 :]
    # A piece may have been sent twice.
    sent = b""
    for at, piece in sorted(pieces.items()):
        sent += piece[max(len(sent) - at, 0) :]
    return sent


class Network:
    """Hosts of these names, each reached by all others and from here."""

    def __init__(self, *names, seed=1):
        self.number = next(NUMBERS)
        self.names = [HERE, *names]
        self.delay_seconds, self.loss_ratio, self.cuts = 0.0, 0.0, frozenset()
        self.random = random.Random(seed)
        self.carried = self.lost = 0
        # Frames since somebody wants to know them.
        self.recorded = None
        self.ends, self.wake, self.thread = [], os.pipe(), None

    def address(self, name):
        return f"10.213.{self.number % 250}.{self.names.index(name) + 1}"

    def namespace(self, name):
        return f"umbo-test-{os.getpid()}-{self.number}-{name}"

    def prefix(self, name):
        """What makes a command run on a host."""
        return ("ip", "netns", "exec", self.namespace(name))

    def tell(self, name, names):
        """Tells a host the addresses of names; it knows no others. To be called before something runs there, too."""
        file = self.settings(name) / "hosts"
        file.parent.mkdir(parents=True, exist_ok=True)
        # In place: the file is mounted over that of this machine.
        with file.open("r+" if file.exists() else "w") as written:
            written.truncate()
            written.writelines(f"{address} {known}\n" for known, address in names.items())

    def settings(self, name):
        """The folder whose files a command on the host sees in /etc."""
        return pathlib.Path("/etc/netns") / self.namespace(name)

    def cut(self, name, *others):
        """Lets nothing pass between a host and these others, or any other, until `mend`."""
        others = others or [other for other in self.names if other != name]
        self.cuts = self.cuts | {frozenset((name, other)) for other in others}

    def mend(self):
        self.cuts = frozenset()

    def __enter__(self):
        try:
            for name in self.names:
                self.connect(name)
        except BaseException:
            self.__exit__()
            raise
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()
        return self

    def connect(self, name):
        """Makes a host and its device, by whose last byte the switch knows it."""
        at = self.names.index(name)
        device = f"umn{os.getpid() % 100_000}x{self.number % 250}-{at}"
        self.ends.append(tap(device))
        there = ()
        if name != HERE:
            ip("netns", "add", self.namespace(name))
            ip("link", "set", device, "netns", self.namespace(name))
            there = ("-n", self.namespace(name))
            ip(*there, "link", "set", "lo", "up")
        ip(*there, "link", "set", device, "address", f"02:00:00:00:00:{at:02x}")
        ip(*there, "addr", "add", f"{self.address(name)}/24", "dev", device)
        ip(*there, "link", "set", device, "up")

    def __exit__(self, *_):
        if self.thread:
            os.write(self.wake[1], b"x")
            self.thread.join()
        for end in [*self.ends, *self.wake]:
            os.close(end)
        for name in self.names[1:]:
            subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True)
            shutil.rmtree(self.settings(name), ignore_errors=True)

    def ways(self, at, frame):
        """Where a frame of a host goes: to the one that it names, or to all."""
        is_for_all, to = frame[0] & 1, frame[5]
        others = (other for other in range(len(self.ends)) if other != at)
        for other in others if is_for_all else [to] if to < len(self.ends) else []:
            is_cut = frozenset((self.names[at], self.names[other])) in self.cuts
            if is_cut or self.random.random() < self.loss_ratio:
                self.lost += 1
            else:
                yield self.ends[other]

    def carry(self):
        """Carries frames until it is told to stop."""
        waiting, order, patience = [], itertools.count(), None
        while True:
            readable, _, _ = select.select([*self.ends, self.wake[0]], [], [], patience)
            if self.wake[0] in readable:
                return
            now = time.monotonic()
            for end in readable:
                with contextlib.suppress(BlockingIOError):
                    while frame := os.read(end, 1 << 16):
                        if self.recorded is not None:
                            self.recorded.append(frame)
                        for way in self.ways(self.ends.index(end), frame):
                            heapq.heappush(waiting, (now + self.delay_seconds, next(order), way, frame))
            while waiting and waiting[0][0] <= now:
                _, _, end, frame = heapq.heappop(waiting)
                # A device that is down, or full, loses it.
                with contextlib.suppress(OSError):
                    os.write(end, frame)
                    self.carried += 1
            patience = waiting[0][0] - now if waiting else None
