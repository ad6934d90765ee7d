"""What the image, the containers and the manifests say, read into plain data.

Owns no opinion about what is right.
"""

import json
import os
import re
import shlex
import subprocess

import yaml

from processes import PROJECT, binary

CONFIG = PROJECT / "config"
KUBERNETES = CONFIG / "kubernetes"
IMAGE = "umbo"
# For the roles that may reach a port.
FOR_ALL = "all"


def umbo(*arguments, environment=None):
    """Runs the binary with nothing of ours in its environment but what is given."""
    environment = {"PATH": "/usr/bin:/bin"} | (environment or {})
    return subprocess.run(
        [binary(), *arguments], capture_output=True, text=True, timeout=60, env=environment, cwd="/"
    )


class Image:
    """The Dockerfile, instruction by instruction."""

    def __init__(self):
        text = (PROJECT / "Dockerfile").read_text()
        joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.M))
        self.instructions = [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]
        self.stages = [words for name, words in self.instructions if name == "FROM"]
        last = max(at for at, (name, _) in enumerate(self.instructions) if name == "FROM")
        self.final = self.instructions[last:]

    def all(self, name):
        """What an instruction says wherever it stands in the last stage."""
        return [words for found, words in self.final if found == name]

    def one(self, name):
        (words,) = self.all(name)
        return words

    def environment(self):
        pairs = (word.split("=", 1) for words in self.all("ENV") for word in shlex.split(words))
        return dict(pairs)

    def health_check(self):
        """The command, as a list."""
        return json.loads(self.one("HEALTHCHECK").partition("CMD")[2])

    def entrypoint(self):
        return json.loads(self.one("ENTRYPOINT"))

    def ports(self):
        return {int(port) for port in self.one("EXPOSE").split()}


def compose(profile=None):
    """docker-compose.yml with the services of a profile, or with those that have none, and with their volumes."""
    whole = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
    services = {name: one for name, one in whole["services"].items() if one.get("profiles") == (profile and [profile])}
    of_others = [one for name, one in whole["services"].items() if name not in services]
    mounted = {volume.split(":")[0] for one in of_others for volume in one.get("volumes", [])}
    volumes = {name: one for name, one in whole["volumes"].items() if name not in mounted}
    return whole | {"services": services, "volumes": volumes}


def of_image(services):
    """Those that run the image, with all of their environment."""
    image = Image().environment()
    return {
        name: service | {"environment": image | service["environment"]}
        for name, service in services.items()
        if service["image"] == IMAGE
    }


def settings_of(environment):
    """Those variables that are settings."""
    return {name: value for name, value in environment.items() if name.startswith("UMBO__")}


# What the guides link to of the project beyond what is installed: notes for developers.
OF_DEVELOPERS = {"tests/generators", ".cargo/config.toml"}


def check_documents(root):
    """Checks that the contract, guides, dashboards and alerts are below a folder as they are in the project."""
    for document in (
        "config/README.md",
        "config/umbo.toml",
        "config/kubernetes/README.md",
        "config/recipes/README.md",
        "crates/umbo-api/README.md",
        "crates/umbo-api/openapi.json",
        "crates/umbo-client/README.md",
        *(f"config/{file.relative_to(CONFIG)}" for kind in ("grafana", "prometheus") for file in (CONFIG / kind).rglob("*.*")),
    ):
        assert (root / document).read_bytes() == (PROJECT / document).read_bytes(), document
    for guide in root.rglob("*.md"):
        links = {link for link in re.findall(r"\]\(([^)#\s]+)", guide.read_text()) if "://" not in link}
        there = {os.path.normpath(guide.parent.relative_to(root) / link) for link in links}
        missing = {link for link in there - OF_DEVELOPERS if not (root / link).exists()}
        assert not missing, (guide, missing)


def manifests():
    """Every document of the manifests."""
    files = sorted(KUBERNETES.glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def of_kind(kind):
    return [one for one in manifests() if one["kind"] == kind]


def workloads():
    """What starts pods, by name."""
    kinds = of_kind("StatefulSet") + of_kind("Deployment")
    return {one["metadata"]["name"]: one for one in kinds}


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


def container_of(workload):
    (container,) = pod_of(workload)["containers"]
    return container


def config_map():
    (one,) = of_kind("ConfigMap")
    return one["data"]


def names_in(certificate):
    """Names of hosts that a certificate is for."""
    show = ["openssl", "x509", "-in", certificate, "-noout", "-ext", "subjectAltName"]
    return set(re.findall(r"DNS:([^,\s]+)", subprocess.run(show, capture_output=True, text=True, check=True).stdout))


def reached_by(policy):
    """The roles that a policy lets reach each port."""
    found = {}
    for rule in policy["spec"]["ingress"]:
        roles = {one["podSelector"]["matchLabels"]["app"] for one in rule["from"]} if "from" in rule else FOR_ALL
        for port in rule["ports"]:
            assert port["port"] not in found and port.get("protocol", "TCP") == "TCP"
            found[port["port"]] = roles
    return found
