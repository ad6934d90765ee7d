"""One sector of the disk cannot be read: one row suffers, and no other."""

import os
import pathlib
import struct
import threading

import pytest

from harness import Namespace, wait_until
from preload import preloaded

SECTOR = 512
NEEDLE = b"the row on the bad sector "
LIBRARY = pathlib.Path(__file__).with_name("bad_sector.c")
# Requests for the row on the bad sector, and of each of the others beside every one of them.
REQUESTS = 60
BESIDE_EACH = 5


class Sector:
    """The sector that cannot be read."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(32))

    def spoil(self, file, first):
        self.path.write_bytes(struct.pack("=QQQQ", os.stat(file).st_ino, first, SECTOR, 0))

    def failed_reads(self):
        return struct.unpack("=QQQQ", self.path.read_bytes())[3]


def until(stop, work):
    """Runs `work` in a thread over and over; returns the thread and the list of what it returned."""
    results = []

    def run():
        while not stop.is_set():
            results.append(work(len(results)))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


@pytest.mark.parametrize("size", [100, 300_000])
@pytest.mark.parametrize("how", ["write", "read"])
def test_other_callers_do_not_suffer_from_a_bad_sector(new_server, tmp_path, how, size):
    sector = Sector(tmp_path / "sector")
    environment = {"LD_PRELOAD": preloaded(LIBRARY), "TEST_BAD_SECTOR": str(sector.path)}
    settings = {"store": {"shards": 1, "cache": "1MiB"}}
    server = new_server(settings, environment=environment).start()
    victim, other = server.namespace("victim"), server.namespace("other")
    for number in range(200):
        victim.put(f"row-{number:03}", value=b"x" * 2_000)
        other.put(f"row-{number:03}", value=b"x" * 2_000)
    victim.put("row-100-bad", value=(NEEDLE * (size // len(NEEDLE) + 1))[:size])
    # What the caches of pages hold is not read from the disk.
    other.write([{"pk": f"more-{number}", "v": "x" * 4_000} for number in range(1_000)])
    (file,) = (path for path in server.data.iterdir() if path.suffix == ".redb")
    found = file.read_bytes().rfind(NEEDLE)
    assert found >= 0
    sector.spoil(file, (found - size // 2) // SECTOR * SECTOR)

    stop = threading.Event()
    victim = Namespace(server.client(), "victim")
    writer, reader = (Namespace(server.client(), "other") for _ in range(2))

    def suffer(number):
        if how == "write":
            return victim.put("row-100-bad", value=b"%d" % number * 50).status
        return victim.get("row-100-bad").status

    def write(number):
        return writer.put(f"row-{number % 200:03}", value=b"y" * 2_000).status

    def read(number):
        return reader.get(f"row-{number * 7 % 200:03}").status

    others = [until(stop, one) for one in (write, read)]
    written, seen = (results for _, results in others)
    suffered = []
    try:
        for number in range(REQUESTS):
            suffered.append(suffer(number))
            beside = BESIDE_EACH * (number + 1)
            wait_until(lambda: min(len(written), len(seen)) >= beside, "the others are served")
    finally:
        stop.set()
        for thread, _ in others:
            thread.join()
    assert sector.failed_reads() > 0, "the sector was read"
    assert set(suffered) <= {200, 201, 204, 500, 503}, set(suffered)
    for results in (written, seen):
        succeeded = sum(status in (200, 204) for status in results)
        assert succeeded >= 0.99 * len(results), (succeeded, len(results))
    answer = server.admin().get("/readyz")
    assert answer.status == 200, answer
