"""Real nodes of Cassandra from jars, for the tests whose servers keep their rows there.

One node is shared by a process of tests, and started by the first server that needs it; a test that loses nodes has a
cluster of its own. Nodes end with their standard input, and so with that process. What is missing fails the tests, and
skips none.
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


class Node:
    """A node on files of its own. Those of a cluster have the same ports (CQL and storage) and different hosts."""

    def __init__(self, number, nodes, ports, more="", environment=None):
        self.number, self.nodes, self.ports, self.environment = number, nodes, ports, environment or {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="umbo-test-cassandra-"))
        (self.folder / "more.yaml").write_text(more)
        self.process = None

    def start(self):
        """Starts it, and waits until it serves."""
        subprocess.run([SCRIPTS / "fetch.sh", JARS], check=True)
        words = [self.number, self.folder, self.nodes, *self.ports]
        self.process = subprocess.Popen(
            [SCRIPTS / "node.sh", *map(str, words)],
            env={"JARS": str(JARS), "PATH": "/usr/local/bin:/usr/bin:/bin"} | self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        wait_until(lambda: self.answers() or self.process.poll() is not None, "the node of Cassandra serves")
        assert self.process.poll() is None, (self.folder / "log").read_text()

    def address(self):
        return f"127.0.0.{self.number}:{self.ports[0]}"

    def answers(self):
        try:
            with socket.create_connection((f"127.0.0.{self.number}", self.ports[0]), 1) as asked:
                asked.sendall(OPTIONS)
                return asked.recv(9)[4:5] == bytes([SUPPORTED])
        except OSError:
            return False

    def kill(self):
        """kill -9."""
        self.process.stdin.close()
        self.process.wait()

    def discard(self):
        if self.process:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Cluster:
    """Nodes that each have a copy of all rows."""

    def __init__(self, count, more="", environment=None):
        """`more` adds to the settings of each node."""
        self.ports = (free_port(), free_port())
        self.nodes = [Node(number, count, self.ports, more, environment) for number in range(1, count + 1)]

    def __enter__(self):
        try:
            # One that finds no other gives up.
            for node in self.nodes:
                node.start()
            self.settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.discard()

    def settle(self):
        """Waits until each node has found all others that run: one that has not refuses what needs their copies."""
        for node in self.nodes:
            log = node.folder / "log"
            others = [f"/127.0.0.{other.number}:{self.ports[1]} is now UP" for other in self.nodes if other is not node]
            wait_until(lambda: all(one in log.read_text() for one in others), f"node {node.number} has found the others")

    def settings(self):
        """Settings of servers that share rows, which no others have."""
        addresses = ", ".join(node.address() for node in self.nodes)
        return {
            "contact_points": addresses,
            "replication": len(self.nodes),
            "buckets": 16,
            "instance": next(INSTANCES),
        }


@functools.cache
def shared():
    """Starts the node that all servers of this process share."""
    cluster = Cluster(1)
    atexit.register(cluster.__exit__)
    return cluster.__enter__()


def settings(folder):
    """Settings of the servers on this folder. They share rows, which no server on another folder has."""
    known = pathlib.Path(folder) / "instance"
    known.parent.mkdir(parents=True, exist_ok=True)
    if not known.exists():
        known.write_text(str(next(INSTANCES)))
    # A node does not live by the clock of a test, and no jump of it is a node that is silent.
    return shared().settings() | {"instance": int(known.read_text()), "request_timeout": "1m"}
