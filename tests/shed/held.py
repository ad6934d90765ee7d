"""Commits of a store that a test holds and lets go: the store is as slow as the test says, on any machine.

Owns the file that held_sync.c reads.
"""

import mmap
import os
import pathlib
import tempfile

from preload import preloaded

SOURCE = pathlib.Path(__file__).with_name("held_sync.c")
# As in held_sync.c: is_held, waiting, may_pass, and the beginning of paths.
WORD_LEN = 8
IS_HELD, WAITING, MAY_PASS, BEGINS = range(4)
LEN = 4096


class Commits:
    """The commits of the processes that are started with `environment`."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="umbo-test-held-sync-")
        self.file.truncate(LEN)
        self.shared = mmap.mmap(self.file.fileno(), LEN)
        # A word changes with one store; `struct` would clear it before.
        self.words = memoryview(self.shared).cast("Q")

    def environment(self):
        return {"LD_PRELOAD": preloaded(SOURCE), "TEST_HELD_SYNC": self.file.name}

    def hold(self, path=None):
        """Holds the commits of one shard's file and of its log, or of all."""
        begins = os.fsencode(os.path.realpath(path.with_suffix(""))) + b"." if path else b""
        self.words[MAY_PASS] = 0
        self.shared[BEGINS * WORD_LEN : LEN] = begins.ljust(LEN - BEGINS * WORD_LEN, b"\0")
        self.words[IS_HELD] = 1

    def let_pass(self, count=1):
        """Lets so many calls pass of those that wait, and holds the others."""
        self.words[MAY_PASS] = count

    def let_go(self):
        self.words[IS_HELD] = 0

    def waiting(self):
        """How many calls wait."""
        return self.words[WAITING]

    def close(self):
        self.words.release()
        self.shared.close()
        self.file.close()
