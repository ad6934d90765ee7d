"""What the time of the store costs: in full, by regression, and of a commit each write's share."""

import os
import random
import re

import pytest

from harness import Namespace, Server
from quotas import MICROS, Prices, charged, in_threads

PRICES = Prices()
# A millisecond of the store costs a tenth of a request unit.
MICROS_PER_MS = MICROS // 10
ROWS, VALUE_LEN = 2_000, 4_000
STORE_MS = re.compile(r"\bstore;dur=(\d+\.\d{3})")


def row(number):
    return f"p{number % 40}", f"s{number:06}"


def evict(folder):
    """Drops the pages of all files from the memory of the system."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def measured(answer, plain):
    """The milliseconds that the store took, and what the answer was charged for its time."""
    return float(STORE_MS.search(answer.headers["server-timing"])[1]), charged(answer) - plain


def slope(pairs):
    """Least squares of a line: its rise, in millionths of a unit for a millisecond."""
    mean_ms = sum(ms for ms, _ in pairs) / len(pairs)
    mean_price = sum(price for _, price in pairs) / len(pairs)
    above = sum((ms - mean_ms) * (price - mean_price) for ms, price in pairs)
    return above / sum((ms - mean_ms) ** 2 for ms, _ in pairs)


@pytest.mark.embedded("the pages are those of the process that is asked")
def test_a_millisecond_costs_a_tenth_of_a_unit_cold_or_hot(tmp_path):
    with Server(tmp_path, {"store": {"cache": "1MiB", "shards": 2}}) as server:
        server.start()
        ns = server.namespace("pages")
        for first in range(0, ROWS, 500):
            rows = [
                dict(zip(("pk", "sk", "v"), (*row(number), "v" * VALUE_LEN)))
                for number in range(first, first + 500)
            ]
            assert ns.write(rows).status == 200
        server.stop()
        evict(tmp_path)
        server.start()
        ns = Namespace(server.client(), "pages")
        dice = random.Random(5)
        size = len(row(0)[1]) + VALUE_LEN
        hot, cold = [], []
        for number in dice.sample(range(ROWS), 250):
            answer = ns.get(*row(number), Prefer="umbo-timing", Cache_Control="no-cache")
            cold.append(measured(answer, PRICES.read(1, size)))
            answer = ns.get(*row(number), Prefer="umbo-timing", Cache_Control="no-cache")
            hot.append(measured(answer, PRICES.read(1, size)))
        for number in range(40):
            headers = {"prefer": "umbo-timing", "cache-control": "no-cache"}
            answer = ns.range(f"p{number}", headers, limit=10)
            cold.append(measured(answer, PRICES.read(10, 10 * size)))
        pairs = hot + cold
        for ms, price in pairs:
            # The field has three decimals.
            assert abs(price - ms * MICROS_PER_MS) <= MICROS_PER_MS * 0.0006 + 1, (ms, price)
        ratio = slope(pairs) / MICROS_PER_MS
        print(f"slope {ratio:.4f} of a tenth of a unit a millisecond;", end=" ")
        for name, some in (("hot", hot), ("cold", cold)):
            print(f"{name}: {sum(ms for ms, _ in some) / len(some):.3f} ms on average,", end=" ")
        print(f"at most {max(ms for ms, _ in pairs):.3f} ms")
        assert 0.95 <= ratio <= 1.05
        server.stop()


def test_writes_of_one_commit_share_the_price_of_its_time(new_server):
    server = new_server({"store": {"shards": 1}}).start()
    server.namespace("commits")
    writers, puts = 16, 60

    def write(number):
        ns = Namespace(server.client(), "commits")
        sorts = [f"{number}-{n}" for n in range(puts)]
        answers = [ns.put("p", sort, b"v") for sort in sorts]
        assert all(answer.status == 201 for answer in answers)
        plain = [PRICES.write(1, len(sort) + 1) for sort in sorts]
        return sum(map(charged, answers)) - sum(plain)

    begun = server.clock.monotonic()
    for_time = sum(in_threads(writers, write))
    elapsed_ms = (server.clock.monotonic() - begun) * 1000
    # One committer is busy for no longer than the clock says.
    assert 0 < for_time <= elapsed_ms * MICROS_PER_MS, (for_time, elapsed_ms)
