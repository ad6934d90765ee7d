"""Commits of a store that a test holds and lets go: the store is as slow as the test says, on any machine.

Owns the file that held_sync.c reads.
"""

import mmap
import os
import pathlib
import struct
import tempfile

from preload import preloaded

SOURCE = pathlib.Path(__file__).with_name("held_sync.c")
# As in held_sync.c: is_held, waiting, may_pass, and the beginning of paths.
WORD = struct.Struct("=Q")
IS_HELD, WAITING, MAY_PASS, BEGINS = range(4)
LEN = 4096


class Commits:
    """The commits of the processes that are started with `environment`."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="umbo-test-held-sync-")
        self.file.truncate(LEN)
        self.shared = mmap.mmap(self.file.fileno(), LEN)

    def environment(self):
        return {"LD_PRELOAD": preloaded(SOURCE), "TEST_HELD_SYNC": self.file.name}

    def hold(self, path=None):
        """Holds the commits of one shard's file and of its log, or of all."""
        begins = os.fsencode(os.path.realpath(path.with_suffix(""))) + b"." if path else b""
        self.write(MAY_PASS, 0)
        self.shared[BEGINS * WORD.size : LEN] = begins.ljust(LEN - BEGINS * WORD.size, b"\0")
        self.write(IS_HELD, 1)

    def let_pass(self, count=1):
        """Lets so many calls pass of those that wait, and holds the others."""
        self.write(MAY_PASS, count)

    def let_go(self):
        self.write(IS_HELD, 0)

    def waiting(self):
        """How many calls wait."""
        return WORD.unpack_from(self.shared, WAITING * WORD.size)[0]

    def write(self, word, value):
        WORD.pack_into(self.shared, word * WORD.size, value)

    def close(self):
        self.shared.close()
        self.file.close()
