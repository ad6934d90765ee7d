"""Cities of the world, imported through two dispatchers at once into three nodes, ranged and exported.

The sample by default; `UMBO_TESTS_CITIES` names a file with all of them.
"""

import collections
import json
import os
import pathlib
import subprocess
import threading

import pytest

from harness import PROJECT, Namespace, binary, wait_until

CITIES = pathlib.Path(os.environ.get("UMBO_TESTS_CITIES", PROJECT / "tests/data/cities-sample.ndjson"))
KEYS = 6_000


def umbo(dispatcher, *arguments):
    environment = {"PATH": os.environ["PATH"], "UMBO_SERVER": f"http://127.0.0.1:{dispatcher.port}"}
    return subprocess.run([binary(), *arguments], env=environment, capture_output=True, text=True, timeout=600)


def import_through(dispatcher, name, file, failures):
    done = umbo(dispatcher, "kv", "import", "--create", name, str(file))
    if done.returncode != 0:
        failures.append(done)


@pytest.fixture
def rows():
    with open(CITIES, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def both_know(pair, name):
    first, second = pair.dispatchers
    first.namespace(name)
    ns = Namespace(second.client(), name)
    wait_until(lambda: ns.get("nobody").json()["type"].endswith("/key-not-found"), "both know it")


def import_halves(pair, name, rows, folder):
    """Each dispatcher takes every other row."""
    both_know(pair, name)
    failures, importers = [], []
    for at, dispatcher in enumerate(pair.dispatchers):
        file = folder / f"{name}-{at}.ndjson"
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[at::2])
        file.write_text(text, encoding="utf-8")
        importers.append(threading.Thread(target=import_through, args=(dispatcher, name, file, failures)))
    [one.start() for one in importers]
    [one.join() for one in importers]
    assert not failures, failures


def rows_of_nodes(pair, before):
    """Rows on each node, beside those that were there before, as the nodes themselves know them at this moment."""
    found = collections.Counter({name: int(node.metric("umbo_shard_rows")) for name, node in pair.nodes.items()})
    return found - before if before else found


def test_the_same_rows_come_out(pair, rows, folder):
    import_halves(pair, "cities", rows, folder)
    expected = collections.defaultdict(dict)
    for row in rows:
        expected[row["pk"]][row["sk"]] = row["v"]
    for at, dispatcher in enumerate(pair.dispatchers):
        ns = Namespace(dispatcher.client(), "cities")
        for country in sorted(expected, key=lambda country: -len(expected[country]))[:5]:
            found = [(row["sk"], row["v"]) for row in ns.range_all(country)]
            assert found == sorted(expected[country].items(), key=lambda item: item[0].encode())
        prefixed = [row["sk"] for row in ns.range_all("US", prefix="CA/", limit=40)]
        in_california = [sort for sort in expected["US"] if sort.startswith("CA/")]
        assert prefixed == sorted(in_california, key=str.encode)
        target = folder / f"export-{at}.ndjson"
        done = umbo(dispatcher, "kv", "export", "cities", "--file", str(target))
        assert done.returncode == 0, done
        with open(target, encoding="utf-8") as lines:
            *exported, end = [json.loads(line) for line in lines]
        assert end["end"]["rows"] == len(exported)
        assert len(exported) == len(rows)
        assert {(row["pk"], row["sk"]): row["v"] for row in exported} == {
            (pk, sk): v for pk, own in expected.items() for sk, v in own.items()
        }


def test_rows_spread_evenly_over_the_nodes(pair, rows, folder):
    """Each city a partition of its own; those of a whole country lie together, and are few."""
    before = rows_of_nodes(pair, None)
    many = [{"pk": f"{row['pk']}/{row['sk']}/{copy}", "v": "x"} for copy in range(-(-KEYS // len(rows))) for row in rows]
    import_halves(pair, "spread", many, folder)
    wait_until(lambda: sum(rows_of_nodes(pair, before).values()) >= len(many), "all rows are counted")
    found = rows_of_nodes(pair, before)
    print(dict(found))
    assert set(found) == set(pair.nodes)
    even = sum(found.values()) / len(found)
    for node, count in found.items():
        assert abs(count / even - 1) < 0.15, found
