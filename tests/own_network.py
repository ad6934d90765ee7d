"""A network that nothing else of the machine uses.

Owns the network namespace of a thread. Needs root.
"""

import contextlib
import ctypes
import os
import subprocess

CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def own_network():
    """Puts this thread, and what it starts, into a network namespace with a loopback device.

    Published ports then collide with no others, bridges and rules end with the namespace, and devices that other tests
    make are not seen.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before:
        assert libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert libc.setns(before.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
