"""Imports and exports while the nodes of a cluster are away, one after the other."""

import json
import os
import socket
import time

import pytest

from bulk import PATIENCE, files_of, read_rows, row, run, start, write_rows
from harness import wait_until

# By hand with more of them, on a release build: `UMBO_TEST_ROWS=1000000`.
ROWS = int(os.environ.get("UMBO_TEST_ROWS", "120000"))
AWAY_SECONDS = 5


def limit(cluster, rate):
    """Makes bulk work take some seconds, so that it meets all nodes."""
    (dispatcher,) = cluster.dispatchers
    policy = f'{{"name":"slow","unit":"writes","per":["namespace"],"rate":{rate},"burst":{rate}}}'
    assert dispatcher.client().put("/admin/v1/quotas/slow", policy.encode()).status == 201
    return dispatcher


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_an_import_goes_on_while_each_node_is_away_in_turn(new_cluster, folder, how):
    cluster = new_cluster().start()
    dispatcher = limit(cluster, ROWS // 20)
    write_rows(folder / "rows", ROWS)
    with open(folder / "rows", "a", encoding="utf-8") as lines:
        # The later one wins, wherever the earlier one waits.
        lines.writelines(f'{{"pk":"p{n}","sk":"{n}","v":"last"}}\n' for n in range(300))
    command = start(dispatcher, "kv", "import", "n", "rows", "--sort-window", "1", *PATIENCE, folder=folder)
    times = 0
    for node in cluster.nodes.values():
        time.sleep(1)
        if command.poll() is not None:
            break
        times += 1
        getattr(node, how)()
        time.sleep(AWAY_SECONDS)
        node.start() if how == "kill" else node.resume()
    said = command.communicate(timeout=300)[1].decode()
    assert command.returncode == 0, said[-4000:]
    assert f"{ROWS + 300} rows written, 0 failed" in said and times == 3, (times, said)
    assert files_of(folder, "rows") == []
    run(dispatcher, "kv", "export", "n", "-f", "out", folder=folder)
    expected = {(one["pk"], one["sk"]): one["v"] for one in map(row, range(ROWS))}
    expected |= {(f"p{n}", str(n)): "last" for n in range(300)}
    assert read_rows(folder / "out")[0] == expected


def test_the_rows_of_other_shards_do_not_wait_for_one_that_is_away(new_cluster, folder):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    run(dispatcher, "ns", "create", "n", folder=folder)
    write_rows(folder / "rows", ROWS)
    cluster.nodes["b"].kill()
    command = start(dispatcher, "kv", "import", "n", "rows", *PATIENCE, folder=folder)
    begun = time.monotonic()
    held = lambda: files_of(folder, "rows")
    wait_until(lambda: any(".held-" in name for name in held()), "rows wait")
    # All rows of the shards that serve are there while the node is still away.
    served = [cluster.nodes[name] for name in "ac"]
    written = lambda: sum(node.metric("umbo_shard_mutations_total") for node in served)
    wait_until(lambda: written() >= ROWS * 0.6, "the others are written")
    took = time.monotonic() - begun
    print(f"two thirds of {ROWS} rows in {took:.1f} s while a node was away")
    assert command.poll() is None
    cluster.nodes["b"].start()
    said = command.communicate(timeout=300)[1].decode()
    assert command.returncode == 0 and f"{ROWS} rows written, 0 failed" in said, said[-4000:]
    assert held() == []


def test_rows_are_given_up_when_nothing_is_written_any_more(new_cluster, folder):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    run(dispatcher, "ns", "create", "n", folder=folder)
    write_rows(folder / "rows", 6_000)
    cluster.nodes["b"].kill()
    said = run(dispatcher, "kv", "import", "n", "rows", "--patience", "2s", folder=folder, code=7)
    assert files_of(folder, "rows") == ["rows.failed.ndjson"]
    failed = (folder / "rows.failed.ndjson").read_text().splitlines()
    assert 1_000 < len(failed) < 3_000 and all("shard-unavailable" in line for line in failed), said
    cluster.nodes["b"].start()
    run(dispatcher, "dlq", "redrive", "rows.failed.ndjson", folder=folder)
    run(dispatcher, "kv", "export", "n", "-f", "out", folder=folder)
    assert read_rows(folder / "out")[0] == read_rows(folder / "rows")[0]


def test_an_export_goes_on_while_each_node_is_away_in_turn(new_cluster, folder):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    write_rows(folder / "rows", ROWS)
    run(dispatcher, "kv", "import", "n", "rows", folder=folder)
    for number, node in enumerate(cluster.nodes.values()):
        command = start(dispatcher, "kv", "export", "n", "-f", f"out{number}", *PATIENCE, folder=folder)
        time.sleep(0.1)
        node.kill()
        time.sleep(AWAY_SECONDS)
        node.start()
        said = command.communicate(timeout=300)[1].decode()
        assert command.returncode == 0, said[-4000:]
        rows, end = read_rows(folder / f"out{number}")
        assert end["rows"] == ROWS and rows == read_rows(folder / "rows")[0]


def test_a_stream_that_fails_half_way_names_the_cursor_to_continue_with(new_cluster):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace()
    for first in range(0, 40_000, 10_000):
        rows = [{"pk": "p", "sk": f"{n:06}", "v": "x" * 400} for n in range(first, first + 10_000)]
        assert ns.write(rows).status == 200
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(60)
    sock.connect(("127.0.0.1", dispatcher.port))
    sock.sendall(b"GET /v1/ns/demo/range/p?max_bytes=1000000000 HTTP/1.0\r\n\r\n")
    text = sock.recv(4096)
    for node in cluster.nodes.values():
        node.kill()
    while chunk := sock.recv(1 << 20):
        text += chunk
    sock.close()
    lines = [json.loads(line) for line in text.split(b"\n") if line.startswith(b"{")]
    assert lines[-1]["error"]["type"] == "/v1/errors/shard-unavailable", lines[-1]
    for node in cluster.nodes.values():
        node.start()
    wait_until(lambda: ns.range("p", limit=1).status == 200, "the nodes are back")
    rest = ns.range_all("p", cursor=lines[-1]["cursor"])
    assert [row["sk"] for row in lines[:-1] + rest] == [f"{n:06}" for n in range(40_000)]
