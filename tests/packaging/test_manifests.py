"""The Kubernetes manifests: everything they name exists, and the parts fit one another."""

import os
import re
import subprocess
import tomllib

import pytest

from package import (
    FOR_ALL,
    IMAGE,
    KUBERNETES,
    config_map,
    container_of,
    manifests,
    names_in,
    of_kind,
    pod_of,
    reached_by,
    umbo,
    workloads,
)

NAMESPACE = "umbo"
ROLES = {"umbo-shard": "shard", "umbo-dispatcher": "dispatcher"}
CERTIFICATE = {"tls.crt", "tls.key", "ca.crt"}
# Made by the operator, from what README.md says; with the files in them.
SECRETS = {"umbo-shard-tls": CERTIFICATE, "umbo-dispatcher-tls": CERTIFICATE, "umbo-tokens": {"tokens.toml"}}
# Who may reach a port, by the name of the port.
REACHED_BY = {
    "umbo-dispatcher": {"data": FOR_ALL, "admin": FOR_ALL, "cluster": {"umbo-dispatcher"}},
    "umbo-shard": {"admin": FOR_ALL, "shard": {"umbo-dispatcher", "umbo-shard"}},
}


@pytest.fixture
def settings(tmp_path):
    """The settings of the pods, in a file of their own beside the map."""
    for name, text in config_map().items():
        (tmp_path / name).write_text(text.replace("/etc/umbo/", f"{tmp_path}/"))
    return tmp_path / "umbo.toml"


def values():
    return tomllib.loads(config_map()["umbo.toml"])


def cluster_map():
    return tomllib.loads(config_map()["cluster.toml"])


def test_the_kinds_are_those_that_are_needed():
    kinds = [one["kind"] for one in manifests()]
    parts = {"Namespace": 1, "ConfigMap": 1, "Service": 3, "StatefulSet": 1, "Deployment": 1}
    expected = parts | {"PodDisruptionBudget": 2, "NetworkPolicy": 2}
    assert {kind: kinds.count(kind) for kind in kinds} == expected
    versions = {
        "StatefulSet": "apps/v1",
        "Deployment": "apps/v1",
        "PodDisruptionBudget": "policy/v1",
        "NetworkPolicy": "networking.k8s.io/v1",
    }
    for one in manifests():
        assert one["apiVersion"] == versions.get(one["kind"], "v1")
        inside = one["metadata"]["name"] if one["kind"] == "Namespace" else one["metadata"]["namespace"]
        assert inside == NAMESPACE


def test_every_command_line_exists():
    for name, workload in workloads().items():
        role, *flags = container_of(workload)["args"]
        assert role == ROLES[name] and container_of(workload)["image"] == IMAGE
        said = umbo(role, "--help")
        assert said.returncode == 0
        for flag in (flag for flag in flags if flag.startswith("-")):
            assert re.search(rf"(?<!\S){re.escape(flag)}(?![\w-])", said.stdout), (role, flag)


def test_every_setting_exists_and_has_a_value_it_can_have(settings):
    checked = umbo("config", "check", str(settings))
    assert checked.returncode == 0, checked
    for name, workload in workloads().items():
        set_here = {}
        for one in container_of(workload)["env"]:
            set_here[one["name"]] = one.get("value", "a")
            assert ("value" in one) != ("valueFrom" in one)
        shown = umbo("config", "show", "--config", str(settings), environment=set_here)
        assert shown.returncode == 0, (name, shown.stderr)
        assert all(variable.startswith("UMBO__") for variable in set_here)


def test_a_setting_that_does_not_exist_would_be_noticed(settings):
    settings.write_text(settings.read_text().replace("drain_delay", "drain_dely"))
    assert umbo("config", "check", str(settings)).returncode != 0


def test_the_map_is_whole_and_names_the_pods(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text(config_map()["cluster.toml"])
    checked = umbo("shard", "verify", "--map", str(file))
    assert checked.returncode == 0, checked
    shards = workloads()["umbo-shard"]
    service = shards["spec"]["serviceName"]
    port = int(values()["shard"]["listen"].rsplit(":", 1)[1])
    assert cluster_map()["nodes"] == {
        f"umbo-shard-{at}": f"umbo-shard-{at}.{service}.{NAMESPACE}.svc.cluster.local:{port}"
        for at in range(shards["spec"]["replicas"])
    }
    (name,) = [one for one in container_of(shards)["env"] if one["name"] == "UMBO__CLUSTER__NODE"]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"


def mounts(workload):
    """What is mounted where."""
    volumes = {volume["name"]: volume for volume in pod_of(workload)["volumes"]}
    claims = workload["spec"].get("volumeClaimTemplates", [])
    volumes |= {claim["metadata"]["name"]: claim for claim in claims}
    mounted = {mount["mountPath"]: volumes[mount["name"]] for mount in container_of(workload)["volumeMounts"]}
    assert len(mounted) == len(volumes), "nothing is there for nothing"
    return mounted


def files(volume):
    if "configMap" in volume:
        (one,) = of_kind("ConfigMap")
        assert volume["configMap"]["name"] == one["metadata"]["name"]
        return set(one["data"])
    if "secret" in volume:
        return SECRETS[volume["secret"]["secretName"]]
    return set()


def test_every_file_that_is_named_is_mounted():
    paths = {values()["cluster"][key] for key in ("map", "certificate", "key", "ca")}
    for name, workload in workloads().items():
        container = container_of(workload)
        own = {one["value"] for one in container["env"] if one.get("value", "").startswith("/")}
        named = paths | own | {argument for argument in container["args"] if argument.startswith("/")}
        mounted = {f"{path}/{file}" for path, volume in mounts(workload).items() for file in files(volume)}
        assert named <= mounted, (name, named - mounted)
        read_only = [mount for mount in container["volumeMounts"] if mount["mountPath"] != "/data"]
        assert all(mount["readOnly"] and "subPath" not in mount for mount in read_only)


def test_the_data_lies_on_a_volume_of_its_own():
    shards = workloads()["umbo-shard"]
    assert "resources" in mounts(shards)[values()["store"]["folder"]]["spec"]
    assert values()["store"]["folder"] not in mounts(workloads()["umbo-dispatcher"])


def test_ports_agree():
    listens = {
        "umbo-shard": {"shard": values()["shard"]["listen"], "admin": values()["shard"]["admin_listen"]},
        "umbo-dispatcher": {
            "data": values()["server"]["listen"],
            "admin": values()["server"]["admin_listen"],
            "cluster": values()["cluster"]["listen"],
        },
    }
    for name, workload in workloads().items():
        ports = {port["name"]: port["containerPort"] for port in container_of(workload)["ports"]}
        assert ports == {port: int(address.rsplit(":", 1)[1]) for port, address in listens[name].items()}
        scraped = workload["spec"]["template"]["metadata"]["annotations"]
        assert int(scraped["prometheus.io/port"]) == ports["admin"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container_of(workload)[probe]["httpGet"]
            assert asked["port"] in ports
            assert asked["path"] == ("/readyz" if probe == "readinessProbe" else "/healthz")


def test_services_and_budgets_find_their_pods():
    labels = {one["spec"]["template"]["metadata"]["labels"]["app"]: one for one in workloads().values()}
    for service in of_kind("Service"):
        pods = container_of(labels[service["spec"]["selector"]["app"]])
        ports = {port["name"]: port["containerPort"] for port in pods["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    headless = [one for one in of_kind("Service") if one["spec"].get("clusterIP") == "None"]
    shards = workloads()["umbo-shard"]
    assert [one["metadata"]["name"] for one in headless] == [shards["spec"]["serviceName"]]
    for workload in workloads().values():
        assert workload["spec"]["selector"]["matchLabels"] == workload["spec"]["template"]["metadata"]["labels"]
    budgets = {one["spec"]["selector"]["matchLabels"]["app"]: one["spec"] for one in of_kind("PodDisruptionBudget")}
    assert sorted(budgets) == sorted(labels)
    assert budgets["umbo-shard"]["maxUnavailable"] == 1
    assert budgets["umbo-dispatcher"]["minAvailable"] < labels["umbo-dispatcher"]["spec"]["replicas"]


def test_a_pod_is_given_the_time_that_its_end_takes():
    server = values()["server"]
    ends = sum(int(server[key].removesuffix("s")) for key in ("drain_delay", "drain_timeout"))
    for workload in workloads().values():
        assert pod_of(workload)["terminationGracePeriodSeconds"] > ends
        probe = container_of(workload)["readinessProbe"]
        noticed = probe["periodSeconds"] * probe["failureThreshold"]
        assert noticed <= int(server["drain_delay"].removesuffix("s"))


def test_pods_ask_for_what_they_need_and_may_no_more():
    for workload in workloads().values():
        pod, container = pod_of(workload), container_of(workload)
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        inside = container["securityContext"]
        assert inside["allowPrivilegeEscalation"] is False and inside["readOnlyRootFilesystem"] is True
        assert inside["capabilities"] == {"drop": ["ALL"]}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


def test_a_certificate_has_the_names_of_its_role_and_of_no_other(tmp_path):
    made = subprocess.run([KUBERNETES / "certificates.sh", tmp_path / "made"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    hosts = {address.rsplit(":", 1)[0] for address in cluster_map()["nodes"].values()}
    names = {"shard": hosts, "dispatcher": {"umbo-dispatcher"}}
    assert {folder.name for folder in (tmp_path / "made").iterdir()} == set(names)
    authorities = set()
    for role, expected in names.items():
        folder = tmp_path / "made" / role
        assert {file.name for file in folder.iterdir()} == SECRETS[f"umbo-{role}-tls"]
        assert all(file.stat().st_mode & 0o077 == 0 for file in folder.iterdir())
        assert names_in(folder / "tls.crt") == expected
        for purpose in ("sslserver", "sslclient"):
            verify = ["openssl", "verify", "-purpose", purpose, "-CAfile", folder / "ca.crt", folder / "tls.crt"]
            assert subprocess.run(verify, capture_output=True).returncode == 0, (role, purpose)
        authorities.add((folder / "ca.crt").read_text())
    assert len(authorities) == 1


def test_each_role_shows_its_own_certificate():
    for name, workload in workloads().items():
        mounted = {volume["secret"]["secretName"] for volume in pod_of(workload)["volumes"] if "secret" in volume}
        assert {secret for secret in mounted if secret.endswith("-tls")} == {f"{name}-tls"}


def test_a_port_is_open_to_the_roles_that_need_it():
    policies = {one["metadata"]["name"]: one for one in of_kind("NetworkPolicy")}
    assert sorted(policies) == sorted(workloads())
    for name, workload in workloads().items():
        policy = policies[name]["spec"]
        assert policy["podSelector"] == workload["spec"]["selector"]
        # Any other port is closed. What a pod asks for is left to the operator.
        assert policy["policyTypes"] == ["Ingress"]
        ports = {port["name"]: port["containerPort"] for port in container_of(workload)["ports"]}
        assert reached_by(policies[name]) == {ports[port]: roles for port, roles in REACHED_BY[name].items()}


def test_no_service_leads_to_the_port_of_the_fleet():
    port = int(values()["cluster"]["listen"].rsplit(":", 1)[1])
    # Dispatchers find one another by the address of each pod.
    assert all(one["port"] != port for service in of_kind("Service") for one in service["spec"]["ports"])


def test_the_readme_makes_what_the_pods_mount():
    text = (KUBERNETES / "README.md").read_text()
    for secret in SECRETS:
        assert f"create secret generic {secret} " in text
    mounted = {
        volume["secret"]["secretName"]
        for workload in workloads().values()
        for volume in pod_of(workload)["volumes"]
        if "secret" in volume
    }
    assert mounted == set(SECRETS)


# Stands for a cluster, whose secrets are folders.
KUBECTL = """#!/usr/bin/env bash
set -eu
[ "$1 $2" = "-n umbo" ] || exit 64
verb=$3; shift 4
case $verb in
get) # secret NAME -o jsonpath={.data.FILE}
    file=${3#*.data.}; file=${file%\\}}; base64 -w0 "$SECRETS/$1/${file//\\\\/}" ;;
create) # secret generic NAME --from-file=PATH [--dry-run=client -o yaml]
    from=${3#--from-file=}; made=$SECRETS/$2
    [ "${4:-}" = "--dry-run=client" ] && made=$(mktemp -d) && echo "$made"
    mkdir -p "$made"; [ -d "$from" ] && from=$from/*
    cp $from "$made" ;;
patch) # secret NAME --patch-file /dev/stdin
    cp "$(cat "$3")"/* "$SECRETS/$1" ;;
*) exit 64 ;;
esac
"""


@pytest.fixture
def secrets(tmp_path):
    """A cluster of the version with one secret, as a folder a secret."""
    old = [KUBERNETES / "certificates.sh", tmp_path / "old"]
    assert subprocess.run(old, capture_output=True).returncode == 0
    (tmp_path / "secrets").mkdir()
    (tmp_path / "old/shard").rename(tmp_path / "secrets/umbo-cluster-tls")
    (tmp_path / "certificates.sh").symlink_to(KUBERNETES / "certificates.sh")
    (tmp_path / "bin").mkdir()
    # Waiting for the pods keeps a copy of what they have to read by then.
    for name, text in (("kubectl", KUBECTL), ("sleep", "#!/bin/sh\ncp -r $SECRETS waited\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path / "secrets"


def follow(heading, secrets):
    """Runs the commands of a section of the README."""
    section = (KUBERNETES / "README.md").read_text().partition(f"## {heading}\n")[2]
    block = re.search(r"^```console\n(.*?)^```$", section, re.M | re.S)[1]
    script = "set -eo pipefail\n" + re.sub(r"^\$ ", "", block, flags=re.M)
    environment = {"PATH": f"{secrets.parent}/bin:{os.environ['PATH']}", "SECRETS": str(secrets)}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=secrets.parent, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran


def content(secret):
    return {file.name: file.read_text() for file in secret.iterdir()}


def trusts(secret, other):
    verify = ["openssl", "verify", "-CAfile", secret / "ca.crt", other / "tls.crt"]
    return subprocess.run(verify, capture_output=True).returncode == 0


def test_both_secrets_are_filled_from_the_one_of_before_and_then_renewed(secrets):
    roles = [name for name in SECRETS if name.endswith("-tls")]
    follow("From one secret to two", secrets)
    before = content(secrets / "umbo-cluster-tls")
    assert set(before) == CERTIFICATE
    for role in roles:
        assert content(secrets / role) == before
    follow("Renewed certificates", secrets)
    waited = secrets.parent / "waited"
    for role in roles:
        # All trust the new authority while they still show the old certificate; then in any order.
        assert (waited / role / "tls.crt").read_text() == before["tls.crt"]
        assert (secrets / role / "tls.crt").read_text() != before["tls.crt"]
        for one in (waited, secrets):
            for other in roles:
                assert trusts(one / role, waited / other) and trusts(one / role, secrets / other)
    assert names_in(secrets / "umbo-dispatcher-tls/tls.crt") == {"umbo-dispatcher"}
