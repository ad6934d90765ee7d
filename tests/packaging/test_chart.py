"""The Helm chart: as it is, it renders the manifests; with other values, everything still fits together."""

import contextlib
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import tomllib

import pytest
import yaml

from debian import run
from package import CONFIG, KUBERNETES, container_of, manifests, names_in, pod_of, reached_by, umbo
from processes import PROJECT

CHART = CONFIG / "helm/umbo"
TOOLS = PROJECT / "target/tools"
# Settings that differ by pod, are without meaning in a cluster of shard nodes, or are values of the chart
# (shardNodes.cache).
OF_THE_CHART = {
    ("auth", "token_file"),
    ("cluster", "node"),
    ("cluster", "advertise"),
    ("store", "engine"),
    ("store", "shards"),
}
# The engine that takes the place of shard nodes, which are what the chart is about.
OF_OTHER_ENGINES = "cassandra"
# Values for everything that the chart leaves out by default.
ROLE = {
    "env": [{"name": "UMBO__LOG__FILTER", "value": "debug"}],
    "volumes": [{"name": "certificate", "secret": {"secretName": "kv-tls"}}],
    "volumeMounts": [{"name": "certificate", "mountPath": "/etc/kv-tls", "readOnly": True}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "stores", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "terminationGracePeriodSeconds": 90,
}
EVERYTHING = {
    "image": {"pullSecrets": [{"name": "registry"}], "pullPolicy": "Always", "tag": "1.2"},
    "settings": {
        "tls": {"certificate": "/etc/kv-tls/tls.crt", "key": "/etc/kv-tls/tls.key"},
        "quota": {"policy_file": "/etc/umbo/quotas.toml"},
    },
    "files": {"quotas.toml": (CONFIG / "quotas.toml").read_text()},
    "dispatchers": ROLE,
    "shardNodes": ROLE | {"storageClass": "fast"},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
        "hosts": ["kv.example.org", "kv.example.com"],
        "tls": [{"hosts": ["kv.example.org"], "secretName": "kv-tls"}],
    },
    "serviceMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "tlsConfig": {"ca": {"secret": {"name": "kv-tls", "key": "ca.crt"}}, "serverName": "kv.example.org"},
    },
}


def helm(*arguments, **options):
    path = shutil.which("helm", path=f"{os.environ['PATH']}:{TOOLS}")
    if path is None:
        pytest.skip(f"helm is missing; install it: GOBIN={TOOLS} go install helm.sh/helm/v3/cmd/helm@v3.19.0")
    return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60, **options)


def documents_with(values, release="umbo"):
    """The text that the chart renders with these values."""
    ran = helm("template", release, CHART, "--namespace", "umbo", "--values", "-", input=yaml.safe_dump(values))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def by_kind(text):
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


def rendered(release="umbo", namespace="umbo", **values):
    """What the chart renders, by kind and name."""
    given = [word for name, value in values.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
    ran = helm("template", release, CHART, "--namespace", namespace, *given)
    assert ran.returncode == 0, ran.stderr
    return by_kind(ran.stdout)


def test_the_chart_is_the_manifests():
    plain = {(one["kind"], one["metadata"]["name"]): one for one in manifests()}
    # Helm makes the namespace: --create-namespace.
    del plain["Namespace", "umbo"]
    assert rendered() == plain


def test_helm_finds_nothing_wrong():
    linted = helm("lint", "--strict", CHART)
    assert linted.returncode == 0, linted.stdout


def test_the_chart_has_the_version_of_the_binary():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert umbo("version").stdout == f"umbo {chart['appVersion']}\n"


@pytest.fixture(scope="module")
def decoded():
    """Decodes documents strictly into the types of Kubernetes, and returns their kinds."""
    program = TOOLS / "decode-manifests"
    source = PROJECT / "tests/packaging/manifests"
    run("go", "build", "-mod=readonly", "-buildvcs=false", "-o", program, ".", cwd=source)
    return lambda text: run(program, input=text).split()


def test_manifests_decode_into_the_types_of_kubernetes(decoded):
    for file in sorted(KUBERNETES.glob("*.yaml")):
        kinds = [one["kind"] for one in yaml.safe_load_all(file.read_text())]
        assert decoded(file.read_text()) == kinds
    assert sorted(decoded(documents_with({}))) == sorted(kind for kind, _ in rendered())
    everything = decoded(documents_with(EVERYTHING))
    assert everything.count("ServiceMonitor") == 2 and everything.count("Ingress") == 1
    text = (KUBERNETES / "dispatchers.yaml").read_text()
    with pytest.raises(AssertionError, match='unknown field "spec.template.spec.containers\\[0].livenessProb"'):
        decoded(text.replace("livenessProbe:", "livenessProb:"))


def test_every_setting_can_be_set(tmp_path):
    every = tomllib.loads((CONFIG / "umbo.toml").read_text())
    own = tomllib.loads(rendered()["ConfigMap", "umbo-config"]["data"]["umbo.toml"])
    owned = {(section, key) for section, keys in own.items() for key in keys} | OF_THE_CHART
    # Those are the values by default.
    owned -= {("server", "drain_delay"), ("server", "drain_timeout")}
    settings = {
        section: {key: value for key, value in keys.items() if (section, key) not in owned}
        for section, keys in every.items()
        if section != OF_OTHER_ENGINES
    }
    settings = {section: keys for section, keys in settings.items() if keys}
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]["properties"]
    assert {section: list(keys["properties"]) for section, keys in schema.items()} == {
        section: list(keys) for section, keys in settings.items()
    }
    data = by_kind(documents_with({"settings": settings}))["ConfigMap", "umbo-config"]["data"]
    found = tomllib.loads(data["umbo.toml"])
    assert {section: {key: found[section][key] for key in keys} for section, keys in settings.items()} == settings
    for name, text in data.items():
        (tmp_path / name).write_text(text.replace("/etc/umbo/", f"{tmp_path}/"))
    checked = umbo("config", "check", str(tmp_path / "umbo.toml"))
    assert checked.returncode == 0, checked


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("dispatchers.replica=9", "'replica' not allowed"),
        ("shardNodes.replicas=0", "minimum: got 0, want 1"),
        ("dispatchers.replicas=0", "minimum: got 0, want 1"),
        ("shards=0", "minimum: got 0, want 1"),
        ("settings.server.idle_timout=9s", "'idle_timout' not allowed"),
        ("settings.sever.idle_timeout=9s", "'sever' not allowed"),
        # What the chart sets itself.
        ("settings.server.listen=0.0.0.0:80", "'listen' not allowed"),
        ("files.umbo\\.toml=", "invalid propertyName 'umbo.toml'"),
        ("ingress.enabled=yes", "got string, want boolean"),
        ("ingress.enabled=true", "an Ingress needs ingress.hosts"),
    ],
)
def test_a_value_that_means_nothing_is_refused(value, said):
    refused = helm("template", "umbo", CHART, "--set", value)
    assert refused.returncode != 0 and said in refused.stderr, refused


def test_pods_are_as_the_values_say():
    parts = by_kind(documents_with(EVERYTHING))
    for kind, name in (("StatefulSet", "umbo-shard"), ("Deployment", "umbo-dispatcher")):
        pod, container = pod_of(parts[kind, name]), container_of(parts[kind, name])
        for key in ("nodeSelector", "tolerations", "affinity", "terminationGracePeriodSeconds"):
            assert pod[key] == ROLE[key]
        for key in ("env", "volumeMounts"):
            assert container[key][-1:] == ROLE[key] and len(container[key]) > 1
        assert pod["volumes"][-1:] == ROLE["volumes"] and len(pod["volumes"]) > 1
        assert pod["imagePullSecrets"] == EVERYTHING["image"]["pullSecrets"]
        assert (container["image"], container["imagePullPolicy"]) == ("umbo:1.2", "Always")
    assert parts["ConfigMap", "umbo-config"]["data"]["quotas.toml"] == EVERYTHING["files"]["quotas.toml"]


PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def test_probes_and_scrapes_speak_tls_where_clients_do():
    parts = by_kind(documents_with(EVERYTHING))
    dispatcher, node = (container_of(parts[one]) for one in (("Deployment", "umbo-dispatcher"), ("StatefulSet", "umbo-shard")))
    assert {dispatcher[probe]["httpGet"]["scheme"] for probe in PROBES} == {"HTTPS"}
    assert all("scheme" not in node[probe]["httpGet"] for probe in PROBES), "its admin port is without TLS"
    endpoints = {name: one["spec"]["endpoints"] for (kind, name), one in parts.items() if kind == "ServiceMonitor"}
    (of_dispatchers,), (of_nodes,) = endpoints["umbo-dispatcher"], endpoints["umbo-shard"]
    assert of_dispatchers["scheme"] == "https" and of_dispatchers["tlsConfig"]["serverName"] == "kv.example.org"
    assert "scheme" not in of_nodes
    shown = EVERYTHING | {"settings": {"tls": {"certificate": "/a", "key": "/b", "client_ca": "/c"}}}
    dispatcher = container_of(by_kind(documents_with(shown))["Deployment", "umbo-dispatcher"])
    assert all(dispatcher[probe]["tcpSocket"] for probe in PROBES), "the kubelet has no certificate to show"


def test_scrapes_and_the_ingress_find_their_services():
    parts = by_kind(documents_with(EVERYTHING, release="store"))
    services = {name: one for (kind, name), one in parts.items() if kind == "Service"}
    jobs = {job["job_name"] for job in yaml.safe_load((CONFIG / "prometheus.yml").read_text())["scrape_configs"]}
    for role in ("dispatcher", "shard"):
        monitor = parts["ServiceMonitor", f"store-{role}"]
        labels, (endpoint,) = monitor["spec"]["selector"]["matchLabels"], monitor["spec"]["endpoints"]
        ports = [port["port"] for one in services.values() if one["metadata"]["labels"] == labels for port in one["spec"]["ports"]
                 if port["name"] == endpoint["port"]]  # fmt: skip
        assert ports == [{"dispatcher": 8081, "shard": 7412}[role]]
        assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": f"umbo-{role}"}]
        assert f"umbo-{role}" in jobs and monitor["metadata"]["labels"] == {"release": "prometheus"}
    ingress = parts["Ingress", "store"]
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == EVERYTHING["ingress"]["hosts"]
    for rule in ingress["spec"]["rules"]:
        (path,) = rule["http"]["paths"]
        service = path["backend"]["service"]
        (port,) = services[service["name"]]["spec"]["ports"]
        assert port["name"] == service["port"]["name"] and port["port"] == 8080


@pytest.mark.parametrize(("nodes", "shards"), [(1, 1), (2, 3), (5, 12), (7, 64)])
def test_other_values_fit_together_too(tmp_path, nodes, shards):
    parts = rendered("store", "data", shardNodes__replicas=nodes, shards=shards, dispatchers__replicas=1, image__tag="1.2")
    text = yaml.safe_dump_all(parts.values())
    assert not re.search(r"(?<!/etc/)\bumbo-(shard|dispatcher|config|tokens)", text) and "namespace: umbo" not in text
    config = parts["ConfigMap", "store-config"]["data"]
    for name, content in config.items():
        (tmp_path / name).write_text(content.replace("/etc/umbo/", f"{tmp_path}/"))
    verified = umbo("shard", "verify", "--map", str(tmp_path / "cluster.toml"))
    assert verified.returncode == 0, verified
    assert umbo("config", "check", str(tmp_path / "umbo.toml")).returncode == 0
    cluster = tomllib.loads(config["cluster.toml"])
    hosts = [f"store-shard-{at}.store-shards.data.svc.cluster.local:7411" for at in range(nodes)]
    assert sorted(cluster["nodes"].values()) == sorted(hosts)
    assert len(cluster["shards"]) == shards and {one["node"] for one in cluster["shards"]} <= set(cluster["nodes"])
    policies = {name: reached_by(one) for (kind, name), one in parts.items() if kind == "NetworkPolicy"}
    assert policies["store-dispatcher"][7410] == {"store-dispatcher"}
    assert policies["store-shard"][7411] == {"store-dispatcher", "store-shard"}
    workloads = [parts["StatefulSet", "store-shard"], parts["Deployment", "store-dispatcher"]]
    assert workloads[0]["spec"]["replicas"] == nodes
    for workload in workloads:
        assert container_of(workload)["image"] == "umbo:1.2"
        for volume in pod_of(workload)["volumes"]:
            name = volume.get("configMap", {}).get("name") or volume["secret"]["secretName"]
            assert name in ("store-config", "store-tokens", f"{workload['metadata']['name']}-tls")


def test_secrets_can_have_other_names():
    parts = rendered("store", secrets__shardNodes="held", secrets__dispatchers="held")
    for workload in (parts["StatefulSet", "store-shard"], parts["Deployment", "store-dispatcher"]):
        mounted = {one["secret"]["secretName"] for one in pod_of(workload)["volumes"] if "secret" in one}
        assert mounted - {"store-tokens"} == {"held"}


class Api(http.server.BaseHTTPRequestHandler):
    """The part of a cluster's API that the chart looks into: which config maps and secrets there are."""

    def do_GET(self):
        path = self.path.partition("?")[0]
        *_, kind, name = path.split("/")
        answer = None
        if path == "/api/v1":
            kinds = {"configmaps": "ConfigMap", "secrets": "Secret"}
            resources = [{"name": plural, "kind": kind, "namespaced": True} for plural, kind in kinds.items()]
            answer = {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}
        elif path.startswith("/api/v1/namespaces/umbo/") and (kind, name) in self.server.found:
            answer = {"apiVersion": "v1", "kind": "any", "metadata": {"name": name}}
        body = json.dumps(answer or {"kind": "Status", "reason": "NotFound", "code": 404}).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def cluster_with(*found):
    """Arguments for helm to ask a cluster that has these objects."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        server.found = set(found)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield ["--dry-run=server", "--kube-apiserver", f"http://127.0.0.1:{server.server_port}"]
        finally:
            server.shutdown()


OF_ONE_SECRET = [("configmaps", "umbo-config"), ("secrets", "umbo-tokens"), ("secrets", "umbo-cluster-tls")]


@pytest.mark.parametrize("filled", [[], ["umbo-shard-tls"], ["umbo-dispatcher-tls"]])
def test_an_upgrade_is_refused_while_a_secret_is_missing(filled):
    upgrade = ["template", "umbo", CHART, "--namespace", "umbo", "--is-upgrade"]
    with cluster_with(*OF_ONE_SECRET, *(("secrets", name) for name in filled)) as asked:
        refused = helm(*upgrade, *asked)
        # The one secret may stand for both.
        names = ("--set", "secrets.shardNodes=umbo-cluster-tls", "--set", "secrets.dispatchers=umbo-cluster-tls")
        taken = helm(*upgrade, *asked, *names)
    assert refused.returncode != 0 and "umbo-cluster-tls" in refused.stderr, refused
    missing = {"umbo-shard-tls", "umbo-dispatcher-tls"} - set(filled)
    assert any(f"the secret {name} is missing" in refused.stderr for name in missing), refused
    title = re.search(r"see (.+) in (\S+\.md)", refused.stderr)
    assert f"## {title[1]}\n" in (PROJECT / title[2]).read_text()
    assert taken.returncode == 0, taken.stderr


def test_an_upgrade_with_all_secrets_and_a_first_release_are_not_refused():
    filled = [("secrets", "umbo-shard-tls"), ("secrets", "umbo-dispatcher-tls")]
    with cluster_with(*OF_ONE_SECRET, *filled) as asked:
        upgraded = helm("template", "umbo", CHART, "--namespace", "umbo", "--is-upgrade", *asked)
    with cluster_with() as asked:
        installed = helm("template", "umbo", CHART, "--namespace", "umbo", *asked)
    assert upgraded.returncode == installed.returncode == 0, (upgraded.stderr, installed.stderr)


def test_a_map_of_ones_own_is_taken(tmp_path):
    own = tmp_path / "values.yaml"
    planned = umbo("cluster", "plan", "--nodes", "a=a:1,b=b:1", "--shards", "2", "-o", "json")
    assert planned.returncode == 0, planned
    text = yaml.safe_load(planned.stdout)["map"]
    own.write_text(yaml.safe_dump({"map": text}))
    ran = helm("template", "umbo", CHART, "--values", str(own))
    assert ran.returncode == 0, ran.stderr
    (config,) = [one for one in yaml.safe_load_all(ran.stdout) if one and one["kind"] == "ConfigMap"]
    assert tomllib.loads(config["data"]["cluster.toml"]) == tomllib.loads(text)


def test_policies_can_be_left_out():
    assert not [name for kind, name in rendered(networkPolicies="false") if kind == "NetworkPolicy"]


def test_certificates_are_made_for_another_release_too(tmp_path):
    parts = rendered("store", "data", shardNodes__replicas=5, clusterDomain="example.org")
    nodes = tomllib.loads(parts["ConfigMap", "store-config"]["data"]["cluster.toml"])["nodes"]
    made = [KUBERNETES / "certificates.sh", tmp_path, *certificates_of_notes()]
    assert subprocess.run(made, capture_output=True).returncode == 0
    assert names_in(tmp_path / "shard/tls.crt") == {address.rsplit(":", 1)[0] for address in nodes.values()}
    assert names_in(tmp_path / "dispatcher/tls.crt") == {"umbo-dispatcher"}


def certificates_of_notes():
    """Arguments of the script after its folder, as the chart's notes say them for this release."""
    values = {
        "Release.Name": "store",
        "Release.Namespace": "data",
        "Values.shardNodes.replicas": "5",
        "Values.clusterDomain": "example.org",
    }
    said = re.search(r"certificates\.sh certificates (.*)", (CHART / "templates/NOTES.txt").read_text())[1]
    return re.sub(r"{{ \.([\w.]+) }}", lambda found: values[found[1]], said).split()
