"""Containers for tests: podman with a separate storage, networks and images, in `target/tests-containers`.

Owns no opinion about what runs in them. No registry of images is asked: images of others are made here, from a minimal
Debian and its packages, under the names that the Dockerfile and docker-compose.yml say. They are kept for the next run;
all else goes with the engine, but for the last addresses of its networks, which the plugins keep. Needs root, like
`podman` with networks.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess

from debian import TARGET, minimal_debian, run
from own_network import own_network
from package import Image, compose
from processes import PROJECT, binary, wait_until

FOLDER = TARGET / "tests-containers"
TOOLS = ["podman", "buildah", "podman-compose", "runc", "iptables", "dnsmasq"]
PLUGINS = ["/usr/lib/cni/bridge", "/usr/lib/cni/dnsname"]
# Cannot be made of Debian's packages.
LEFT_OUT = "grafana"

ENGINE_CONF = """
[network]
network_backend = "cni"
network_config_dir = "{folder}/networks"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
static_dir = "{folder}/engine"
volume_path = "{folder}/volumes"
tmp_dir = "{folder}/tmp"
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=4096:4096"]
"""
STORAGE_CONF = """
[storage]
driver = "vfs"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
INSTALL = "RUN apt-get update && apt-get install -y --no-install-recommends {} && rm -rf /var/lib/apt/lists/*\n"
RUST = INSTALL.format("binutils ca-certificates") + "COPY cargo /usr/local/bin/cargo\n"
# The toolchain and the registry of crates are not put into an image: what the Dockerfile asks for is checked, and the
# binary under test, which is mounted, is put where cargo would leave it.
CARGO = """#!/bin/sh
set -e
[ "$*" = "build --release --locked --bin umbo" ]
test -f Cargo.toml && test -f Cargo.lock && test -d crates
install -D /prebuilt/umbo target/release/umbo
"""
HAPROXY = INSTALL.format("haproxy") + """USER haproxy
STOPSIGNAL SIGUSR1
ENTRYPOINT ["haproxy"]
CMD ["-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
"""
PROMETHEUS = """COPY prometheus /bin/prometheus
RUN install --directory --owner=nobody --group=nogroup /prometheus
USER nobody
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
"""


class Engine:
    """Podman and what belongs to it. One at a time in a folder of the project."""

    def __init__(self):
        assert os.geteuid() == 0, "only root can run containers with networks"
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin:{TARGET / 'tools'}"
        missing = [tool for tool in TOOLS if not shutil.which(tool, path=path)]
        missing += [plugin for plugin in PLUGINS if not os.path.exists(plugin)]
        assert not missing, f"missing, see install_packages in tests/run: {missing}"
        for name in ("networks", "tmp", "build"):
            (FOLDER / name).mkdir(parents=True, exist_ok=True)
        files = {"CONTAINERS_CONF": ENGINE_CONF, "CONTAINERS_STORAGE_CONF": STORAGE_CONF}
        self.environment = os.environ | {"PATH": path, "TMPDIR": str(FOLDER / "build")}
        for name, text in files.items():
            file = FOLDER / name.lower()
            file.write_text(text.format(folder=FOLDER))
            self.environment[name] = str(file)

    def run(self, *command, **options):
        # Where podman leaves its notes.
        return run(*command, env=self.environment, cwd=FOLDER, **options)

    def podman(self, *arguments, **options):
        return self.run("podman", *arguments, **options)

    def compose(self, *arguments, **options):
        """podman-compose on the project's own file."""
        file = PROJECT / "docker-compose.yml"
        return self.run("podman-compose", "-p", "umbo", "-f", file, *arguments, **options)

    def remove_everything(self):
        """Everything but images, also what a run that was killed has left."""
        self.podman("rm", "--all", "--force", "--volumes", "--time", "0")
        self.podman("volume", "prune", "--force")
        self.podman("network", "prune", "--force")
        assert self.podman("ps", "--all", "--quiet") == self.podman("volume", "ls", "--quiet") == ""

    def build(self, name, folder, *flags):
        # The format that knows health checks.
        flags = ["--isolation=chroot", "--layers=false", "--format=docker", "--pull-never", *flags]
        self.run("buildah", "bud", *flags, "--tag", name, folder)

    def has_image(self, name):
        return subprocess.run(["podman", "image", "exists", name], env=self.environment).returncode == 0

    def build_image_of_others(self, name, base, lines, **files):
        """Makes an image unless it is there."""
        if self.has_image(name):
            return
        folder = FOLDER / "context"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
            (folder / file).chmod(0o755)
        (folder / "Dockerfile").write_text(f"FROM {base}\n{lines}")
        self.build(name, folder)

    def build_images(self):
        """All images of docker-compose.yml but Grafana's, and the project's own from its Dockerfile."""
        build, base = (stage.split()[0] for stage in Image().stages)
        if not self.has_image(f"docker.io/library/{base}"):
            self.podman("import", minimal_debian(), f"docker.io/library/{base}")
        services = compose()["services"]
        self.build_image_of_others(f"docker.io/library/{build}", base, RUST, cargo=CARGO.encode())
        self.build_image_of_others(f"docker.io/library/{services['load-balancer']['image']}", base, HAPROXY)
        prometheus = shutil.which("prometheus", path=self.environment["PATH"])
        assert prometheus, "prometheus is missing, see install_tools in tests/run"
        with open(prometheus, "rb") as program:
            name = f"docker.io/{services['prometheus']['image']}"
            self.build_image_of_others(name, base, PROMETHEUS, prometheus=program.read())
        prebuilt = FOLDER / "prebuilt"
        prebuilt.mkdir(exist_ok=True)
        shutil.copy(binary(), prebuilt / "umbo")
        self.build("localhost/umbo", PROJECT, "--volume", f"{prebuilt}:/prebuilt:ro")
        # The images that lost their name to newer ones, and what builds keep for others.
        self.podman("image", "prune", "--force")
        shutil.rmtree(FOLDER / "build", ignore_errors=True)
        (FOLDER / "build").mkdir()

    def container(self, service):
        return Container(self, f"umbo_{service}_1")


@contextlib.contextmanager
def engine():
    """An engine with all images and nothing else, in a separate network; what it ran is ended with it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        one = Engine()
        one.remove_everything()
        one.build_images()
        with own_network():
            try:
                yield one
            finally:
                one.remove_everything()


class Container:
    """A container by name."""

    def __init__(self, engine, name):
        self.engine, self.name = engine, name

    def inspected(self):
        (one,) = json.loads(self.engine.podman("container", "inspect", self.name))
        return one

    def state(self):
        return self.inspected()["State"]

    def identity(self):
        return self.inspected()["Id"]

    def address(self):
        (network,) = self.inspected()["NetworkSettings"]["Networks"].values()
        return network["IPAddress"]

    def is_healthy(self):
        """Runs the health check of the image once."""
        command = ["podman", "healthcheck", "run", self.name]
        return subprocess.run(command, env=self.engine.environment, capture_output=True).returncode == 0

    def wait_until_healthy(self):
        wait_until(self.is_healthy, f"{self.name} is healthy")

    def start(self):
        self.engine.podman("start", self.name)

    def kill(self):
        self.engine.podman("kill", self.name)

    def restart(self):
        """A stop with the time it takes, and a start."""
        self.engine.podman("restart", "--time", "45", self.name)

    def remove(self):
        self.engine.podman("rm", "--force", "--time", "45", self.name)

    def logs(self):
        return self.engine.podman("logs", self.name, capture_output=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
