"""Full disks: room is made through Umbo alone, while it serves, and nothing that was acknowledged is lost."""

import json
import os

import pytest

from bulk_loads import Load, lines
from harness import Namespace, wait_until
from test_disk import MIB, fill, small_disk  # noqa: F401  (a fixture)
from tier import Tier

#: Refused writes one after another, to keys of their own, until every shard surely was asked and is full.
FULL_AFTER = 40
#: Longest time until room that was freed is seen, in seconds: a large value is kept for readers for 20.
ROOM_SECONDS = 120


class FullDisk:
    """A server, or a dispatcher and two nodes, with the data on a small disk, and what was acknowledged."""

    def __init__(self, disk, new_server, folder, is_cluster):
        self.disk, self.kept = disk, {}
        if is_cluster:
            self.server = new_server(tier=Tier(folder / "tier", nodes=("a", "b"), shards=4))
            for node in self.server.tier.nodes.values():
                node.data = disk / node.name
            self.server.tier.start()
        else:
            self.server = new_server({"store": {"shards": 4}})
            self.server.data = disk / "data"
        self.server.start()
        self.ns = self.server.namespace()

    def put(self, *key, value):
        answer = self.ns.put(*key, value=value)
        if answer.status in (201, 204):
            self.kept[key] = value
        else:
            assert answer.problem(507, "storage-full")["outcome"] == "not-applied"
        return answer.status != 507

    def fill(self, name, size, sort=False):
        """Puts rows until every shard is full, or with `sort` the one of a partition."""
        refused, number = 0, 0
        while refused < (1 if sort else FULL_AFTER):
            key = (name, f"{number:05}") if sort else (f"{name}-{number}",)
            refused = 0 if self.put(*key, value=os.urandom(size)) else refused + 1
            number += 1

    def remove(self, count, of=""):
        for key in [key for key in self.kept if key[0].startswith(of)][:count]:
            answer = self.ns.delete(*key)
            assert answer.status == 204, answer
            del self.kept[key]

    def check(self):
        for key, value in self.kept.items():
            assert self.ns.get(*key).body == value, key
        assert len(self.ns.scan_all(keys_only=True)) == len(self.kept)

    def is_writable(self):
        """Whether every shard takes rows."""
        return all(self.put(f"again-{number}", value=b"x" * 10_000) for number in range(FULL_AFTER))

    def free(self):
        disk = os.statvfs(self.disk)
        return disk.f_bavail * disk.f_frsize

    def check_after_kill(self):
        self.check()
        self.server.kill()
        if self.server.tier:
            self.server.tier.kill()
            self.server.tier.start()
        self.server.start()
        self.ns = Namespace(self.server.client(), "demo")
        self.check()

    def logged(self, text):
        processes = [self.server, *(self.server.tier.nodes.values() if self.server.tier else ())]
        return [line for process in processes for line in list(process.log) if text in line]


@pytest.fixture(params=["embedded", "clustered"])
def full_disk(request, small_disk, new_server, folder):  # noqa: F811
    full = FullDisk(small_disk, new_server, folder, request.param == "clustered")
    yield full
    if full.server.tier:
        full.server.tier.discard()


@pytest.mark.parametrize("has_others", [False, True])
def test_rows_are_removed_and_writes_come_back(full_disk, has_others):
    full_disk.fill("row", 20_000)
    if has_others:
        fill(full_disk.disk)
    client = full_disk.ns.client
    # Umbo's own records change meanwhile.
    policy = {"name": "slow", "match": {"operations": ["scan"]}, "per": ["caller"], "unit": "requests"}
    policy |= {"rate": 1000, "burst": 1000}
    made = client.put("/admin/v1/quotas/slow", json.dumps(policy))
    assert made.status in (200, 201), made
    assert full_disk.server.namespace("more").put("a", value=b"x").status == 507
    assert client.delete("/admin/v1/namespaces/more").status in (202, 204)
    full_disk.remove(len(full_disk.kept) // 2)
    wait_until(full_disk.is_writable, "writes come back", ROOM_SECONDS)
    full_disk.check_after_kill()


@pytest.mark.parametrize("has_others", [False, True])
def test_what_was_removed_is_given_back_to_the_disk(full_disk, has_others):
    full_disk.fill("row", 20_000)
    if has_others:
        fill(full_disk.disk)
    full_disk.remove(len(full_disk.kept) * 9 // 10)
    given = len(full_disk.kept) * 5 * 20_000
    wait_until(lambda: full_disk.free() > given, "room is given back", ROOM_SECONDS)
    assert full_disk.logged("its file was compacted")
    full_disk.check_after_kill()


@pytest.mark.parametrize("has_others", [False, True])
def test_a_range_of_one_shard_is_removed(full_disk, has_others):
    full_disk.fill("few", 20_000, sort=True)
    if has_others:
        fill(full_disk.disk)
    answer = full_disk.ns.client.delete(f"{full_disk.ns.base}/range/few?all=true")
    assert answer.status == 200, answer
    full_disk.kept = {}
    wait_until(full_disk.is_writable, "writes come back", ROOM_SECONDS)
    full_disk.check_after_kill()


def test_a_namespace_is_removed(full_disk):
    full_disk.put("kept", value=b"kept")
    other = full_disk.server.namespace("other")
    refused = number = 0
    while refused < FULL_AFTER:
        refused = 0 if other.put(f"row-{number}", value=os.urandom(20_000)).status == 201 else refused + 1
        number += 1
    fill(full_disk.disk)
    assert full_disk.ns.client.delete("/admin/v1/namespaces/other").status in (202, 204)
    wait_until(full_disk.is_writable, "writes come back", ROOM_SECONDS)
    full_disk.check_after_kill()


def test_large_values_are_removed(full_disk):
    full_disk.fill("large", 3 * MIB)
    fill(full_disk.disk)
    full_disk.remove(len(full_disk.kept))
    wait_until(lambda: full_disk.put("large", value=os.urandom(3 * MIB)), "large values have room", ROOM_SECONDS)
    full_disk.check_after_kill()


def test_the_parts_of_a_load_are_removed_with_it(full_disk):
    load = Load.create(full_disk.ns.client, "demo")
    number = 0
    while True:
        rows = lines({"pk": f"p{number}-{row}", "v": os.urandom(1_000).hex()} for row in range(500))
        answer = load.put(number, rows)
        if answer.status != 201:
            answer.problem(507, "storage-full")
            break
        number += 1
    fill(full_disk.disk)
    answer = full_disk.ns.client.post(f"{load.base}/abort")
    assert answer.status == 200, answer
    wait_until(full_disk.is_writable, "writes come back", ROOM_SECONDS)
    full_disk.check_after_kill()


def test_what_expires_makes_room(full_disk):
    client, number, refused = full_disk.ns.client, 0, 0
    while refused < FULL_AFTER:
        row = {"pk": f"row-{number}", "v": os.urandom(10_000).hex(), "ttl": 30}
        answer = client.post(f"{full_disk.ns.base}/batch/write", json.dumps(row).encode())
        refused = 0 if answer.lines()[0]["status"] == 201 else refused + 1
        number += 1
    fill(full_disk.disk)
    wait_until(lambda: not full_disk.ns.scan_all(keys_only=True), "all has expired", ROOM_SECONDS)
    wait_until(full_disk.is_writable, "writes come back", ROOM_SECONDS)
    full_disk.check_after_kill()
