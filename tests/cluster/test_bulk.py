"""Imports and exports while the nodes of a cluster are away, one after the other."""

import json
import os
import socket

import pytest

from bulk import PATIENCE, end_of, files_of, read_rows, row, run, start, step_until, write_rows
from bulk_loads import lines
from deadline import GRACE_SECONDS, by_node
from harness import wait_until

# By hand with more of them, on a release build: `UMBO_TEST_ROWS=1000000`.
ROWS = int(os.environ.get("UMBO_TEST_ROWS", "40000"))
# A page of an export costs more, so that there is one at a time.
SCAN_RATE = 100


def limit(cluster, unit, rate, burst):
    """Paces bulk work by a clock that stands still from here on, but for the steps of the test."""
    (dispatcher,) = cluster.dispatchers
    policy = f'{{"name":"slow","unit":"{unit}","per":["namespace"],"rate":{rate},"burst":{burst}}}'
    assert dispatcher.client().put("/admin/v1/quotas/slow", policy.encode()).status == 201
    dispatcher.clock.stop()


def unlimit(cluster):
    assert cluster.dispatchers[0].client().delete("/admin/v1/quotas/slow").status == 200


def come_back(cluster, node, how):
    """Ends the outage of a node that was killed or paused."""
    (dispatcher,) = cluster.dispatchers
    if how == "kill":
        node.launch()
        # In small steps, so that little is written however long it takes.
        step_until(dispatcher.clock, lambda: node.readiness() == 200, "the node serves", step=0.01)
    else:
        node.resume()
    is_back = lambda: by_node(dispatcher, "umbo_remote_node_up")[node.name] == 1
    step_until(dispatcher.clock, is_back, "the node is connected again")


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_an_import_goes_on_while_each_node_is_away_in_turn(new_cluster, folder, how):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    write_rows(folder / "rows", ROWS)
    with open(folder / "rows", "a", encoding="utf-8") as file:
        # The later one wins, wherever the earlier one waits.
        file.writelines(f'{{"pk":"p{n}","sk":"{n}","v":"last"}}\n' for n in range(300))
    # So slow that much is left for each outage.
    limit(cluster, "writes", ROWS // 100, burst=ROWS // 30)
    arguments = ["kv", "import", "--create", "n", "rows", *PATIENCE]
    command = start(dispatcher, *arguments, folder=folder, clock=dispatcher.clock)
    refused = lambda: dispatcher.metric('umbo_requests_total{operation="batch-write",status="207"}')
    rows = lambda: dispatcher.metric("umbo_shard_rows")
    for node in cluster.nodes.values():
        # More than the record of the namespace.
        goal = rows() + 100
        step_until(dispatcher.clock, lambda: rows() >= goal, "rows are written")
        before = refused()
        getattr(node, how)()
        step_until(dispatcher.clock, lambda: refused() > before, "rows wait for the node")
        come_back(cluster, node, how)
        assert command.poll() is None, command.communicate()
    unlimit(cluster)
    said = end_of(command, dispatcher.clock)
    assert command.returncode == 0, said[-4000:]
    assert f"{ROWS + 300} rows written, 0 failed" in said, said
    assert files_of(folder, "rows") == []
    dispatcher.clock.go()
    run(dispatcher, "kv", "export", "n", "-f", "out", folder=folder)
    expected = {(one["pk"], one["sk"]): one["v"] for one in map(row, range(ROWS))}
    expected |= {(f"p{n}", str(n)): "last" for n in range(300)}
    assert read_rows(folder / "out")[0] == expected


def test_rows_are_given_up_when_nothing_is_written_any_more(new_cluster, folder):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    run(dispatcher, "ns", "create", "n", folder=folder)
    write_rows(folder / "rows", 6_000)
    cluster.nodes["b"].kill()
    dispatcher.clock.stop()
    arguments = ["kv", "import", "n", "rows", "--patience", "2s"]
    command = start(dispatcher, *arguments, folder=folder, clock=dispatcher.clock)
    said = end_of(command, dispatcher.clock)
    dispatcher.clock.go()
    assert command.returncode == 7, said
    assert files_of(folder, "rows") == ["rows.failed.ndjson"]
    failed = (folder / "rows.failed.ndjson").read_text().splitlines()
    assert 1_000 < len(failed) < 3_000 and all("shard-unavailable" in line for line in failed), said
    cluster.nodes["b"].start()
    run(dispatcher, "kv", "import", "n", "rows.failed.ndjson", folder=folder)
    run(dispatcher, "kv", "export", "n", "-f", "out", folder=folder)
    assert read_rows(folder / "out")[0] == read_rows(folder / "rows")[0]


def test_an_export_goes_on_while_each_node_is_away_in_turn(new_cluster, folder):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    rows = [row(number, f"value {number} " + "x" * 200) for number in range(ROWS // 2)]
    (folder / "rows").write_bytes(lines(rows))
    run(dispatcher, "kv", "import", "--create", "n", "rows", folder=folder)
    expected = {(one["pk"], one["sk"]): one["v"] for one in rows}
    pages = lambda status: dispatcher.metric(f'umbo_requests_total{{operation="scan",status="{status}"}}')
    for number, node in enumerate(cluster.nodes.values()):
        limit(cluster, "ru", SCAN_RATE, burst=SCAN_RATE)
        read, refused = pages(200), pages(503)
        arguments = ["kv", "export", "n", "-f", f"out{number}", "--segments", "2", *PATIENCE]
        command = start(dispatcher, *arguments, folder=folder, clock=dispatcher.clock)
        # Each node has rows of more than a page, so that none has given all of them by now.
        step_until(dispatcher.clock, lambda: pages(200) > read, "a page is read")
        node.kill()
        step_until(dispatcher.clock, lambda: pages(503) > refused, "a page is missed")
        come_back(cluster, node, "kill")
        assert command.poll() is None, command.communicate()
        unlimit(cluster)
        said = end_of(command, dispatcher.clock)
        dispatcher.clock.go()
        assert command.returncode == 0, said[-4000:]
        found, end = read_rows(folder / f"out{number}")
        assert end["rows"] == len(rows) and found == expected


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
    wait_until(lambda: not any(by_node(dispatcher, "umbo_remote_node_up").values()), "all nodes are seen to be gone")
    # They are no longer expected back.
    dispatcher.clock.advance(GRACE_SECONDS)
    while chunk := sock.recv(1 << 20):
        text += chunk
    sock.close()
    came = [json.loads(line) for line in text.split(b"\n") if line.startswith(b"{")]
    assert came[-1]["error"]["type"] == "/v1/errors/shard-unavailable", came[-1]
    for node in cluster.nodes.values():
        node.start()
    wait_until(lambda: ns.range("p", limit=1).status == 200, "the nodes are back")
    rest = ns.range_all("p", cursor=came[-1]["cursor"])
    assert [row["sk"] for row in came[:-1] + rest] == [f"{n:06}" for n in range(40_000)]
