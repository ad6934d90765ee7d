"""A cluster of several hosts: each shard node and each dispatcher has a host to itself.

Owns how they are started and asked. What is set is what an operator has to set, and nothing else.
"""

import contextlib
import pathlib
import subprocess

from certificates import LOOPBACK
from harness import Cluster, Server, client_context
from processes import binary, wait_until
from tier import Tier, map_text, spread

NODES = ("store-1", "store-2")
DISPATCHERS = ("left", "middle", "right")
# A host on which nothing runs until a test says so.
STRANGER = "stranger"
SHARDS = 4
# State of a socket in /proc/net/tcp.
LISTENING = "0A"
# Nothing is encrypted; the processes show certificates; clients are served over TLS too, or with certificates of theirs.
PLAIN, CERTIFICATES, TLS, MUTUAL_TLS = KINDS = ("plain", "certificates", "tls", "mutual-tls")


class Hosts:
    """Nodes and dispatchers on the hosts of a network. `kind` is one of KINDS. The map has the addresses of the nodes,
    or names of `domain`, which the hosts have to be told."""

    def __init__(self, folder, network, authority, kind=PLAIN, domain=None):
        self.folder, self.network, self.authority, self.kind = pathlib.Path(folder), network, authority, kind
        self.token = self.context = None
        self.node_names = {f"{name}.{domain}": network.address(name) for name in NODES} if domain else {}
        addresses = {name: f"{name}.{domain}:7411" if domain else f"{network.address(name)}:7411" for name in NODES}
        (self.folder / "tier").mkdir(parents=True)
        (self.folder / "tier/cluster.toml").write_text(map_text(addresses, spread(SHARDS, NODES)))
        if kind != PLAIN:
            self.token = self.new_token()
        self.tier = Tier(self.folder / "tier")
        for name, node in self.tier.nodes.items():
            node.prefix, node.host = network.prefix(name), network.address(name)
            names = f"IP:{network.address(name)}"
            of_cluster = {} if kind == PLAIN else authority.settings("node", names=names)
            node.settings = {"server": {"drain_delay": "0s", "insecure": kind == PLAIN}} | of_cluster
        self.cluster = Cluster(self.folder, 0, tier=self.tier)
        self.nodes = self.tier.nodes
        self.by_name = {name: self.dispatcher(name) for name in DISPATCHERS}
        self.dispatchers = self.cluster.dispatchers = list(self.by_name.values())

    def new_token(self):
        made = subprocess.run(
            [binary(), "token", "create", "--file", str(self.folder / "tokens.toml"), "--name", "ops", "--grant", "*:*"],
            capture_output=True, text=True, timeout=60, check=True,
        )
        return made.stdout.split()[-1]

    def dispatcher(self, name, of_cluster=None):
        """A dispatcher on a host. `of_cluster` adds to its settings of the cluster, or replaces them."""
        address = self.network.address(name)
        settings = {
            "server": {
                "drain_delay": "0s",
                "listen": f"{address}:8080",
                "admin_listen": f"{address}:8081",
                "insecure": self.kind == PLAIN,
            }
        }
        cluster = {}
        if self.kind != PLAIN:
            settings["auth"] = {"token_file": str(self.folder / "tokens.toml")}
            cluster = self.authority.settings("dispatcher")["cluster"]
        if self.kind in (TLS, MUTUAL_TLS):
            files = self.authority.settings("clients", names=f"{LOOPBACK},IP:{address}")["cluster"]
            settings["tls"] = {"certificate": files["certificate"], "key": files["key"]}
            self.context = client_context(files["ca"])
        if self.kind == MUTUAL_TLS:
            own = self.authority.settings("client")["cluster"]
            settings["tls"] |= {"client_ca": own["ca"]}
            self.context = client_context(own["ca"], own["certificate"], own["key"])
        settings["cluster"] = cluster | (of_cluster or {})
        made = Server(self.folder / name, settings, tier=self.tier)
        made.prefix, made.host = self.network.prefix(name), address
        return made

    def admin(self, dispatcher):
        return dispatcher.admin(token=self.token, context=self.context)

    def client(self, dispatcher):
        return dispatcher.client(token=self.token, context=self.context)

    def listed(self, asked):
        """The fleet as a dispatcher lists it."""
        answer = self.admin(asked).get("/admin/v1/fleet")
        assert answer.status == 200, answer
        return answer.json()["processes"]

    def fleet(self, asked, count=len(DISPATCHERS)):
        """The fleet as a dispatcher lists it, once so many are live."""

        def found():
            listed = self.listed(asked)
            return listed if sum(one["state"] == "live" for one in listed) == count else None

        return wait_until(found, f"{count} dispatchers are live")

    def ask(self, asked, route):
        """The answers of all to a route, by the host of the dispatcher. A process that was there before and is away counts
        only where there is no other."""
        answer = self.admin(asked).get(f"/admin/v1/fleet/{route}")
        assert answer.status == 200, answer
        is_asked = lambda one: "error" in one or one["process"]["state"] != "away"  # noqa: E731
        return {self.host_of(one["process"]): one for one in sorted(answer.json()["processes"], key=is_asked)}

    def host_of(self, process):
        """Name of the host on which a process of the fleet is."""
        address = process["about"]["admin_url"].rpartition("//")[2].rpartition(":")[0]
        return next(name for name in self.network.names if self.network.address(name) == address)

    def told(self, asked, field):
        """A field of each dispatcher but strangers, as a dispatcher lists them, by host."""
        listed = {self.host_of(one): one[field] for one in self.listed(asked)}
        return {name: value for name, value in listed.items() if name in DISPATCHERS}

    def umbo(self, asked, *arguments):
        """Runs a command of operators at a dispatcher; returns what it printed."""
        done = self.ran(asked, *arguments)
        assert done.returncode == 0, done
        return done.stdout

    def ran(self, asked, *arguments):
        """A command of operators at a dispatcher that has run."""
        scheme = "http" if self.context is None else "https"
        more = ["--server", f"{scheme}://{asked.host}:{asked.port}"]
        if self.token:
            more += ["--token", self.token]
        if self.context:
            more += ["--ca-file", str(self.authority.folder / "ca.pem")]
        return subprocess.run([binary(), *arguments, *more], capture_output=True, text=True, timeout=120)

    def listens(self, dispatcher):
        """Address and port at which a dispatcher listens for the others, as the kernel of its host knows it."""
        process = pathlib.Path(f"/proc/{dispatcher.process.pid}")
        sockets = set()
        for file in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                sockets.add(str(file.readlink()))
        found = []
        for line in (process / "net/tcp").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENING and f"socket:[{inode}]" in sockets:
                address, port = local.split(":")
                found.append((".".join(str(byte) for byte in reversed(bytes.fromhex(address))), int(port, 16)))
        (own,) = [one for one in found if one[1] not in (dispatcher.port, dispatcher.admin_port)]
        return own

    def start(self):
        self.cluster.start()
        return self

    def stop(self):
        self.cluster.stop()

    def discard(self):
        self.cluster.discard()
