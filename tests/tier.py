"""A storage tier of shard nodes, as plain processes on loopback with a map of their own.

Owns the map and the nodes; dispatchers in front are made by harness.py. A tier that is made again on
the same folder is the same tier: its map, its ports and its data.
"""

import pathlib
import random
import re
import shutil
import socket
import tomllib
import urllib.error
import urllib.request

from clock import Clock
from processes import Process, wait_until

SHARDS = 12
NODES = ("a", "b", "c")
SLOTS = 4096
CLUSTER_ID = "tests"
# Below those that the kernel gives to connections, so that none is taken while its node is down.
PORTS = range(15_000, 32_000)
GIVEN = set()
# Settings of a server that are those of its store.
OF_THE_STORE = ("store", "log")


def free_port():
    """A port nobody listens on now, on loopback; never the same twice."""
    while True:
        port = random.choice(PORTS)
        if port in GIVEN:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                GIVEN.add(port)
                return port
            except OSError:
                continue


def spread(shards, nodes):
    """Gives shards to nodes, as even as it goes; each node's follow one another."""
    return [nodes[shard * len(nodes) // shards] for shard in range(shards)]


def map_text(addresses, owners, cluster_id=CLUSTER_ID, version=1, slots=None):
    """The text of a map. `slots` by shard, as (first, last); evenly where it is not said."""
    count = len(owners)
    bounds = [-(-shard * SLOTS // count) for shard in range(count + 1)]
    slots = slots or list(zip(bounds, [bound - 1 for bound in bounds[1:]]))
    text = f'cluster_id = "{cluster_id}"\nversion = {version}\n\n[nodes]\n'
    text += "".join(f'"{name}" = "{address}"\n' for name, address in addresses.items())
    for shard, (owner, (first, last)) in enumerate(zip(owners, slots)):
        text += f'\n[[shards]]\nid = {shard}\nslots = ["{first}-{last}"]\nnode = "{owner}"\n'
    return text


class Node(Process):
    """A process of `umbo shard`."""

    def __init__(self, folder, name, map_file, host, port, settings=None):
        super().__init__(folder)
        self.name, self.map_file, self.host, self.port = name, map_file, host, port
        self.admin_port = free_port()
        self.data = self.folder / "data"
        self.settings = settings or {}
        # Of a test that puts a library of its own before the node's.
        self.environment = {}

    def effective_settings(self):
        own = {
            "server": {"drain_delay": "0s"},
            "store": {"folder": str(self.data)},
            "cluster": {"map": str(self.map_file), "node": self.name},
            "shard": {
                "listen": f"{self.host}:{self.port}",
                "admin_listen": f"{self.host}:{self.admin_port}",
            },
        }
        for section, values in self.settings.items():
            own[section] = own.get(section, {}) | values
        # The number of shards is the map's.
        own["store"] = {name: value for name, value in own["store"].items() if name != "shards"}
        return own

    def launch(self):
        """Starts the process without waiting for it."""
        self.spawn(["shard"], self.effective_settings(), self.environment)
        return self

    def start(self):
        """Starts the process and waits until it serves."""
        self.launch()
        return self.wait_until_ready()

    def wait_until_ready(self):
        def is_ready():
            assert self.process.poll() is None, f"the node ended: {self.log_text()}"
            return self.readiness() == 200

        wait_until(is_ready, f"node {self.name} serves")
        return self

    def readiness(self):
        """Status of /readyz; none where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.admin_port}/readyz", timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as answer:
            return answer.code
        except OSError:
            return None

    def metric(self, name):
        """Sum of all series of a metric."""
        with urllib.request.urlopen(f"http://{self.host}:{self.admin_port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.M)
        assert found, f"no {name} in {text}"
        return sum(float(value) for value in found)

    def restart(self):
        self.stop()
        return self.start()


class Tier:
    """Shard nodes and their map."""

    def __init__(self, folder, settings=None, nodes=NODES, shards=SHARDS, node_settings=None, clock=None):
        self.folder = pathlib.Path(folder)
        self.clock = clock or Clock()
        self.folder.mkdir(exist_ok=True, parents=True)
        self.map_file = self.folder / "cluster.toml"
        if not self.map_file.exists():
            addresses = {name: f"127.0.0.1:{free_port()}" for name in nodes}
            self.write_map(map_text(addresses, spread(shards, nodes)))
        of_store = {name: values for name, values in (settings or {}).items() if name in OF_THE_STORE}
        self.nodes = {}
        for name, address in self.map()["nodes"].items():
            host, port = address.rsplit(":", 1)
            own = of_store | (node_settings or {})
            self.nodes[name] = Node(self.folder / name, name, self.map_file, host, int(port), own)
            self.nodes[name].clock = self.clock

    def write_map(self, text):
        """Puts a map in the place of the one that is there, all at once."""
        new = self.map_file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.map_file)

    def map(self):
        return tomllib.loads(self.map_file.read_text())

    def owner(self, shard):
        """Name of the node that has a shard."""
        return next(one["node"] for one in self.map()["shards"] if one["id"] == shard)

    def launch(self):
        for node in self.nodes.values():
            if not node.is_running():
                node.launch()
        return self

    def start(self):
        self.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        return self

    def stop(self):
        """All at once, each with a good end."""
        for node in self.nodes.values():
            node.process.terminate()
        for node in self.nodes.values():
            node.wait_for_good_end()

    def kill(self):
        for node in self.nodes.values():
            node.process.kill()
        for node in self.nodes.values():
            node.wait()

    def discard(self):
        for node in self.nodes.values():
            node.discard()

    def remove(self):
        self.discard()
        shutil.rmtree(self.folder, ignore_errors=True)
