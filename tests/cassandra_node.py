"""A real node of Cassandra from jars, for the tests whose servers keep their rows there.

One node for each process of tests, started by the first server that needs it. It ends with its standard input, and so
with that process. What is missing fails the tests, and skips none.
"""

import atexit
import functools
import itertools
import pathlib
import shutil
import socket
import subprocess
import tempfile

from processes import PROJECT, wait_until
from tier import free_port

SCRIPTS = PROJECT / "tests/cassandra"
JARS = PROJECT / "target/debug/cassandra"
# A question of the protocol (version 4, OPTIONS), and the opcode of its answer.
OPTIONS, SUPPORTED = bytes([4, 0, 0, 0, 5, 0, 0, 0, 0]), 6
INSTANCES = itertools.count(1)


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as asked:
            asked.sendall(OPTIONS)
            return asked.recv(9)[4:5] == bytes([SUPPORTED])
    except OSError:
        return False


@functools.cache
def port():
    """Starts the node, and returns its port."""
    subprocess.run([SCRIPTS / "fetch.sh", JARS], check=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="umbo-test-cassandra-"))
    cql, storage = free_port(), free_port()
    node = subprocess.Popen(
        [SCRIPTS / "node.sh", "1", str(folder), "1", str(cql), str(storage)],
        env={"JARS": str(JARS), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )

    def end():
        node.stdin.close()
        node.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    wait_until(lambda: answers(cql) or node.poll() is not None, "the node of Cassandra serves")
    assert node.poll() is None, (folder / "log").read_text()
    return cql


def settings(folder):
    """Settings of the servers on this folder. They share rows, which no server on another folder has."""
    known = pathlib.Path(folder) / "instance"
    known.parent.mkdir(parents=True, exist_ok=True)
    if not known.exists():
        known.write_text(str(next(INSTANCES)))
    return {
        "contact_points": f"127.0.0.1:{port()}",
        "replication": 1,
        "buckets": 16,
        "instance": int(known.read_text()),
    }
