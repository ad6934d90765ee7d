"""What a restart keeps: every row, versions that grow; and how a server stops."""

import collections
import json
import os
import pathlib
import signal
import subprocess
import threading

import pytest

from harness import PROJECT, Namespace, binary, read_answer, receive, wait_until

CITIES = pathlib.Path(
    os.environ.get("UMBO_TESTS_CITIES", PROJECT / "tests/data/cities-sample.ndjson")
)


def tag(answer):
    return int(answer.headers["etag"].strip('"'))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_rows_survive_and_versions_grow(new_server, end):
    server = new_server().start()
    ns = server.namespace("kept", b'{"default_ttl": 5000}')
    first = tag(ns.put("a", "s", b"one", content_type="text/x", Umbo_Expires_At="4102444800000"))
    ns.put("gone")
    ns.delete("gone")
    before = ns.scan_all()

    def described():
        return ns.client.get("/admin/v1/namespaces/kept").json()

    # Of a cluster the size is what its nodes last told.
    wait_until(lambda: described()["size"]["rows"] == 1, "the row is counted")
    info = described()
    for _ in range(3):
        getattr(server, end)()
        server.start()
        ns = Namespace(server.client(), "kept")
        assert ns.scan_all() == before
        wait_until(lambda: described() == info, "the namespace is as before")
    read = ns.get("a", "s")
    assert read.headers["content-type"] == "text/x" and tag(read) == first
    assert tag(ns.put("a", "s", b"two")) > first
    ns.delete("a", "s")
    assert tag(ns.put("a", "s", b"three")) > first, "a version does not come again"
    # A shard node tells it in its own log.
    opened = [json.loads(line) for line in server.log if "the store is open" in line]
    assert all(type(line["took_ms"]) is int for line in opened), opened


def test_cursors_survive_a_restart(new_server):
    server = new_server().start()
    ns = server.namespace()
    ns.write([{"pk": "p", "sk": f"{n:03}", "v": "x"} for n in range(100)])
    in_range = ns.range("p", limit=30).rows_and_end()[1]["cursor"]
    in_scan = ns.scan(limit=30).rows_and_end()[1]["cursor"]
    server.kill()
    server.start()
    ns = Namespace(server.client(), "demo")
    assert len(ns.range_all("p", cursor=in_range)) == 70
    assert len(ns.scan_all(cursor=in_scan)) == 70


def test_sigterm_says_no_first_and_lets_what_is_in_flight_finish(new_server):
    server = new_server({"server": {"drain_delay": "60s", "drain_timeout": "60s"}}).start()
    ns = server.namespace()
    head = f"PUT {ns.path('late')} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
    upload = server.raw(head.encode() + b"01234")
    wait_until(lambda: server.in_flight() >= 1, "the upload has begun")
    server.process.send_signal(signal.SIGTERM)
    client = server.client()
    wait_until(lambda: client.get("/readyz").status == 503, "readiness says no")
    assert client.get("/readyz").json() == {"status": "draining"}
    during = ns.put("during", value=b"x")
    assert during.status == 201, "requests are still taken"
    for last in (during, server.client().get("/healthz"), server.admin().get("/nowhere")):
        assert last.headers["connection"] == "close", "no connection is kept for a request that would be cut off"
    upload.sendall(b"56789")
    answer = read_answer(upload.makefile("rb"))
    assert answer.status == 201 and answer.headers["connection"] == "close"
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    server.start()
    ns = Namespace(server.client(), "demo")
    assert ns.get("late").body == b"0123456789" and ns.get("during").body == b"x"


def test_a_request_in_flight_is_waited_for_when_the_port_closes(new_server):
    server = new_server({"server": {"drain_delay": "0s", "drain_timeout": "60s"}}).start()
    ns = server.namespace()
    head = f"PUT {ns.path('late')} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
    upload = server.raw(head.encode() + b"01234")
    idle = server.raw(b"")
    wait_until(lambda: server.in_flight() >= 1, "the upload has begun")
    server.process.send_signal(signal.SIGTERM)
    assert receive(idle) == b"", "idle connections are closed"
    upload.sendall(b"56789")
    reader = upload.makefile("rb")
    answer = read_answer(reader)
    assert answer.status == 201 and reader.read() == b""
    assert server.wait() == 0
    assert not server.logged("ERROR"), server.log_text()


def test_drain_timeout_ends_what_does_not_finish(new_server):
    settings = {"drain_delay": "0s", "drain_timeout": "300ms", "default_timeout": "300ms"}
    server = new_server({"server": settings}).start()
    ns = server.namespace()
    head = f"PUT {ns.path('never')} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
    upload = server.raw(head.encode() + b"01234")
    wait_until(lambda: server.in_flight() >= 1, "the upload has begun")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    receive(upload)


def test_ctrl_c_does_not_wait_for_load_balancers(new_server):
    server = new_server({"server": {"drain_delay": "1h"}}).start()
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 0


def read_cities():
    with open(CITIES, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    by_partition = collections.defaultdict(dict)
    for row in rows:
        by_partition[row["pk"]][row["sk"]] = row["v"]
    return by_partition


def check_cities(server, cities, folder):
    ns = Namespace(server.client(), "cities")
    for country in sorted(cities, key=lambda country: -len(cities[country]))[:5] + ["AD"]:
        expected = sorted(cities[country].items(), key=lambda item: item[0].encode())
        assert [(row["sk"], row["v"]) for row in ns.range_all(country)] == expected
    in_california = sorted(key for key in cities["US"] if key.startswith("CA/"))
    rows = ns.range_all("US", prefix="CA/", limit=40)
    assert [row["sk"] for row in rows] == sorted(in_california, key=str.encode)
    everything = {(pk, sk): v for pk, rows in cities.items() for sk, v in rows.items()}
    found = {}
    for segment in range(3):
        for row in ns.scan_all(segments=3, segment=segment):
            assert (row["pk"], row["sk"]) not in found
            found[row["pk"], row["sk"]] = row["v"]
    assert found == everything
    target = folder / "export.ndjson"
    run_umbo(server, "kv", "export", "cities", "--file", str(target), "--overwrite")
    with open(target, encoding="utf-8") as lines:
        *exported, end = [json.loads(line) for line in lines]
    assert end["end"]["rows"] == len(exported)
    assert {(row["pk"], row["sk"]): row["v"] for row in exported} == everything
    assert len(exported) == len(everything)


def run_umbo(server, *arguments):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}
    clean["UMBO_SERVER"] = f"http://127.0.0.1:{server.port}"
    done = subprocess.run([binary(), *arguments], env=clean, capture_output=True, timeout=300)
    assert done.returncode == 0, done
    return done.stdout


def test_cities_are_there_after_every_kind_of_end(new_server, folder):
    server = new_server().start()
    cities = read_cities()
    server.namespace("cities")
    run_umbo(server, "kv", "import", "cities", str(CITIES))
    check_cities(server, cities, folder)
    for end in (server.stop, server.kill):
        end()
        server.start()
        check_cities(server, cities, folder)


def test_writers_do_not_notice_that_others_are_restarted(new_server):
    """Writers that repeat what failed lose nothing over three restarts."""
    server = new_server({"server": {"listen": "127.0.0.1:0"}}).start()
    ns = server.namespace()
    acknowledged, stop = {}, threading.Event()

    def write(worker):
        number = 0
        while not stop.is_set():
            client = server.client()
            try:
                key = f"{worker}-{number}"
                answer = Namespace(client, "demo").put(key, value=key.encode())
                if answer.status in (201, 204):
                    acknowledged[key] = answer.headers["etag"]
                    number += 1
            except (OSError, TypeError):
                pass
            finally:
                client.close()

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    [worker.start() for worker in workers]
    for _ in range(3):
        goal = len(acknowledged) + 20
        wait_until(lambda: len(acknowledged) >= goal, "writes go on")
        server.stop()
        server.start()
    stop.set()
    [worker.join() for worker in workers]
    ns = Namespace(server.client(), "demo")
    assert len(acknowledged) >= 60
    for key, etag in acknowledged.items():
        read = ns.get(key)
        assert read.body == key.encode() and int(read.headers["etag"].strip('"')) >= int(etag.strip('"'))
