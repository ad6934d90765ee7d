"""Who may do what: an open server, its first token, the matrix of permissions and namespaces, revoking."""

import json
import re
import signal
import subprocess

import pytest

from harness import Client, Namespace, Server, binary, memory_folder, wait_until

PERMISSIONS = ["read", "write", "scan", "observe", "admin"]

# What else a permission allows.
INCLUDED = {"admin": {"admin", "observe"}}


def requests(name):
    """A request of each permission on a namespace: permission, method, path, body."""
    base = f"/v1/ns/{name}"
    return [
        ("read", "GET", f"{base}/kv/a", b""),
        ("read", "HEAD", f"{base}/kv/a", b""),
        ("read", "GET", f"{base}/range/a", b""),
        ("read", "POST", f"{base}/batch/get", b'{"keys":[]}'),
        ("write", "PUT", f"{base}/kv/a", b"x"),
        ("write", "DELETE", f"{base}/kv/b", b""),
        ("write", "DELETE", f"{base}/kv/b?dry_run", b""),
        ("write", "PATCH", f"{base}/kv/a", b""),
        ("write", "POST", f"{base}/batch/write", b""),
        ("write", "DELETE", f"{base}/range/b?all=true", b""),
        ("scan", "POST", f"{base}/scan", b""),
        ("observe", "GET", f"/admin/v1/namespaces/{name}", b""),
        ("admin", "PUT", f"/admin/v1/namespaces/{name}", b""),
        ("admin", "DELETE", f"/admin/v1/namespaces/{name}?dry_run=true", b""),
    ]


EVERYWHERE = [
    ("GET", "/admin/v1/tokens"),
    ("POST", "/admin/v1/tokens"),
    ("DELETE", "/admin/v1/tokens/nothing"),
    ("GET", "/admin/v1/loads"),
    ("GET", "/admin/v1/shards"),
    ("GET", "/admin/v1/cluster"),
    ("GET", "/admin/v1/config"),
]


def make(client, name, *grants, **more):
    body = {"name": name, "grants": list(grants)} | more
    return client.post("/admin/v1/tokens", body)


@pytest.fixture
def closed(new_server):
    """A server of the test's own with an administrator, and namespaces shop, shop-eu and games."""
    return closed_by(new_server().start())


@pytest.fixture(scope="module")
def shared():
    """The same for tests that leave it as it was, but for tokens. No time passes that could end a request or a connection
    between them."""
    with memory_folder() as path, Server(path) as server:
        server.start().clock.stop()
        yield closed_by(server)


def closed_by(server):
    token = make(server.client(), "root", "*:*").json()["token"]
    client = server.client(token=token)
    for name in ("shop", "shop-eu", "games"):
        assert client.put(f"/admin/v1/namespaces/{name}").status == 201
        assert client.put(f"/v1/ns/{name}/kv/a", b"x").status == 201
    return server, client


def test_the_first_token_closes_the_door_and_is_an_administrator(new_server):
    server = new_server().start()
    client = server.client()
    assert client.put("/admin/v1/namespaces/shop").status == 201
    make(client, "reader", "read:*").problem(409, "last-admin")
    make(client, "local", "admin:shop").problem(409, "last-admin")
    made = make(client, "root", "admin:*")
    assert made.status == 201 and made.json()["name"] == "root"
    token = made.json()["token"]
    for method, path in [("GET", "/v1/ns/shop/kv/a"), ("GET", "/admin/v1/tokens")]:
        answer = client.request(method, path)
        assert answer.problem(401, "unauthenticated")["scope"] == "caller"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    root = server.client(token=token)
    assert root.get("/admin/v1/tokens").status == 200
    root.get("/v1/ns/shop/kv/a").problem(403, "forbidden")
    assert client.get("/healthz").status == client.get("/readyz").status == 200
    assert server.admin().get("/metrics").status == 200
    listed = json.dumps(root.get("/admin/v1/tokens").json())
    assert token.rsplit("_", 1)[-1].rsplit(".", 1)[-1] not in listed, "the secret is shown once"
    assert token not in server.log_text()


def test_the_matrix_of_permissions_and_namespaces(shared):
    server, root = shared
    for permission in PERMISSIONS:
        for pattern, names in [("shop", {"shop"}), ("shop*", {"shop", "shop-eu"}), ("*", None)]:
            made = make(root, f"{permission}-only", f"{permission}:{pattern}").json()
            client = server.client(token=made["token"])
            for name in ("shop", "shop-eu", "games"):
                for needed, method, path, body in requests(name):
                    ttl = {"Umbo-TTL": "60"} if (method, "/kv/" in path) == ("PATCH", True) else {}
                    answer = client.request(method, path, body, ttl)
                    is_allowed = needed in INCLUDED.get(permission, {permission}) and (names is None or name in names)
                    if is_allowed:
                        assert answer.status in (200, 201, 204), (permission, pattern, path, answer)
                    else:
                        assert answer.status == 403, (permission, pattern, method, path, answer)
            for method, path in EVERYWHERE:
                answer = client.request(method, path, b"{}")
                is_allowed = pattern == "*" and (permission == "admin" or (permission, method) == ("observe", "GET"))
                assert (answer.status == 403) != is_allowed, (permission, pattern, path, answer)


def test_several_permissions_and_grants(shared):
    server, root = shared
    token = make(root, "job", "read,write:shop", "scan:games").json()
    assert "token" in token, token
    client = server.client(token=token["token"])
    assert client.put("/v1/ns/shop/kv/z", b"x").status == 201
    assert client.get("/v1/ns/shop/kv/z").status == 200
    assert client.post("/v1/ns/games/scan").status == 200
    client.post("/v1/ns/shop/scan").problem(403, "forbidden")
    client.get("/v1/ns/games/kv/a").problem(403, "forbidden")
    names = [each["name"] for each in client.get("/admin/v1/namespaces").json()["namespaces"]]
    assert names == ["games", "shop"], "a caller sees the namespaces it may use"


def test_refusals_do_not_tell_what_exists(shared):
    server, root = shared
    token = make(root, "reader", "read:shop").json()["token"]
    client = server.client(token=token)
    there = client.get("/v1/ns/games/kv/a").problem(403, "forbidden")
    not_there = client.get("/v1/ns/nowhere/kv/a").problem(403, "forbidden")
    assert there["detail"].replace("games", "") == not_there["detail"].replace("nowhere", "")


def test_credentials_that_are_none(shared):
    server, root = shared
    token = make(root, "reader", "read:*").json()["token"]
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {token}",
        f"Bearer {token}x",
        f"Bearer {token[:-1]}",
        f"Bearer x{token}",
        f"Bearer {token.upper()}",
        "Bearer " + "x" * 5000,
        f"Bearer {token[:-1]}{'a' if token[-1] != 'a' else 'b'}",
    ]
    for value in wrong:
        answer = server.client().get("/v1/ns/shop/kv/a", Authorization=value)
        answer.problem(401, "unauthenticated")
    assert server.client().get("/v1/ns/shop/kv/a", Authorization=f"bearer {token}").status == 200


def test_401_before_the_body_and_before_what_is_wrong_with_the_request(shared):
    server, _ = shared
    client = server.client()
    client.put("/v1/ns/shop/kv/a?wrong=1", b"x" * 1000).problem(401, "unauthenticated")
    client.put("/v1/ns/nowhere/kv/a", b"x").problem(401, "unauthenticated")
    with server.raw(b"PUT /v1/ns/shop/kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n") as s:
        assert s.recv(100).startswith(b"HTTP/1.1 401")


def test_revoking_and_ending(closed):
    server, root = closed
    made = make(root, "reader", "read:*").json()
    client = server.client(token=made["token"])
    assert client.get("/v1/ns/shop/kv/a").status == 200
    assert root.delete(f"/admin/v1/tokens/{made['id']}").status == 204
    client.get("/v1/ns/shop/kv/a").problem(401, "unauthenticated")
    root.delete(f"/admin/v1/tokens/{made['id']}").problem(404, "token-not-found")
    own = root.get("/admin/v1/tokens").json()["tokens"]
    assert [each["name"] for each in own] == ["root"]
    assert make(root, "reader", "read:*").status == 201
    root.delete(f"/admin/v1/tokens/{own[0]['id']}").problem(409, "last-admin")
    assert make(root, "second", "admin:*").status == 201
    assert root.delete(f"/admin/v1/tokens/{own[0]['id']}").status == 204
    root.get("/admin/v1/tokens").problem(401, "unauthenticated")


def test_the_only_token_may_go_and_opens_the_door_again(closed):
    server, root = closed
    (own,) = root.get("/admin/v1/tokens").json()["tokens"]
    assert root.delete(f"/admin/v1/tokens/{own['id']}").status == 204
    assert server.client().get("/v1/ns/shop/kv/a").body == b"x", "only this machine can reach it"


def test_tokens_survive_a_restart(closed):
    server, root = closed
    token = make(root, "reader", "read:shop").json()["token"]
    server.kill()
    server.start()
    client = server.client(token=token)
    assert client.get("/v1/ns/shop/kv/a").body == b"x"
    client.put("/v1/ns/shop/kv/a").problem(403, "forbidden")
    server.client().get("/v1/ns/shop/kv/a").problem(401, "unauthenticated")


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"name": "a"},
        {"name": "a", "grants": []},
        {"name": "", "grants": ["read:*"]},
        {"name": "a b", "grants": ["read:*"]},
        {"name": "a" * 65, "grants": ["read:*"]},
        {"name": "a", "grants": ["read"]},
        {"name": "a", "grants": ["fly:*"]},
        {"name": "a", "grants": ["read:"]},
        {"name": "a", "grants": [":*"]},
        {"name": "a", "grants": ["read:*"], "ttl": 0},
        {"name": "a", "grants": ["read:*"], "criticality_max": "high"},
        {"name": "a", "grants": ["read:*"], "more": 1},
        ["a", ["*:*"]],
    ],
    ids=json.dumps,
)
def test_tokens_that_cannot_be_made(server, body):
    make_raw = server.client().post("/admin/v1/tokens", body)
    make_raw.problem(400, "invalid-body")
    assert server.client().get("/admin/v1/tokens").json() == {"tokens": []}


def test_a_public_address_without_credentials_is_refused(new_server):
    server = new_server({"server": {"listen": "0.0.0.0:0", "admin_listen": "127.0.0.1:0"}}).launch()
    assert server.wait() == 1
    assert "--insecure" in server.log_text() and "token" in server.log_text()


def test_a_token_file_is_asked_for_and_reloaded(new_server, folder):
    """The entry is what a server shows of a token it made, with the hash only its file has."""
    file = folder / "tokens.toml"
    token = token_in_file(file, "admin:*")
    server = new_server({"auth": {"token_file": str(file)}}).start()
    server.client().get("/admin/v1/tokens").problem(401, "unauthenticated")
    root = server.client(token=token)
    (own,) = root.get("/admin/v1/tokens").json()["tokens"]
    assert own["source"] == "file"
    refused = root.delete(f"/admin/v1/tokens/{own['id']}")
    assert "remove it there" in refused.problem(409, "token-of-file")["detail"]
    other = token_in_file(file, "read:*")
    server.process.send_signal(signal.SIGHUP)
    client = server.client(token=other)
    wait_until(lambda: client.get("/v1/ns/a/kv/a").status == 404, "the file is reloaded")
    file.write_text("nonsense")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.logged("ERROR"), "the file cannot be used")
    assert root.get("/admin/v1/tokens").status == 200, "the old tokens stay"


def token_in_file(file, grant):
    command = [binary(), "token", "create", "--file", str(file), "--name", "ops", "--grant", grant]
    made = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made
    return re.search(r"umbo_\w+", made.stdout).group()


def test_a_public_server_does_not_open_when_its_token_file_is_emptied(new_server, folder):
    file = folder / "tokens.toml"
    token = token_in_file(file, "admin:*")
    listen = {"listen": "0.0.0.0:0", "admin_listen": "127.0.0.1:0", "drain_delay": "0s"}
    server = new_server({"server": listen, "auth": {"token_file": str(file)}}).start()
    root = server.client(token=token)
    assert root.get("/admin/v1/tokens").status == 200
    file.write_text("")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: '"reloaded' in server.log_text(), "the file is reloaded")
    server.client().get("/admin/v1/tokens").problem(401, "unauthenticated")
    root.get("/admin/v1/tokens").problem(401, "unauthenticated")


def test_a_claim_above_the_cap_of_a_token_is_lowered_and_said_so(shared):
    server, root = shared
    applied = lambda client, tier, path="/kv/a": (
        client.get(f"/v1/ns/shop{path}", Umbo_Criticality=tier).headers.get("umbo-criticality-applied")
    )
    assert applied(root, "critical") == applied(root, "critical-plus") == "sheddable-plus"
    assert applied(root, "critical", "/range/a") == applied(root, "critical", "/kv/nothing") == "sheddable-plus"
    assert applied(root, "sheddable-plus") is None and applied(root, "sheddable") is None
    made = make(root, "urgent", "read:*", criticality_max="critical").json()
    urgent = server.client(token=made["token"])
    assert applied(urgent, "critical") is None and applied(urgent, "critical-plus") == "critical"
    scan = root.post("/v1/ns/shop/scan")
    assert "umbo-criticality-applied" not in scan.headers, "nothing was claimed"


def test_a_permission_that_nothing_checks_cannot_be_granted(shared):
    server, root = shared
    problem = make(root, "bulk", "read,bulk:*").problem(400, "invalid-body")
    assert "bulk" in problem["detail"]


ANYBODY = {"/", "/page", "/contract", "/healthz", "/readyz", "/openapi.json", "/v1/errors/{code}"}
OF_CALLER = {
    ("get", "/admin/v1/namespaces"),
    ("get", "/admin/v1/hot"),
    ("get", "/admin/v1/usage"),
    ("get", "/admin/v1/tokens/self"),
}
OF_NAMESPACE = ("/admin/v1/namespaces/{ns}", "/admin/v1/hot/{list}/")


def needed(method, path):
    """The permissions of which an operation of the document needs one, and where."""
    if path in ANYBODY or (method, path) in OF_CALLER:
        return None
    if path.startswith("/v1/ns/{ns}/"):
        if path.endswith("/scan"):
            return {"scan"}, "shop"
        if path.endswith("/usage"):
            return {"read", "observe", "admin"}, "shop"
        # How far an upload is concerns who uploads.
        is_read = (method in ("get", "head") and "/parts/" not in path) or path.endswith(("/batch/get", "/explain"))
        return {"read" if is_read else "write"}, "shop"
    assert path.startswith("/admin/v1/"), path
    # A backup holds the rows of everybody, and secrets.
    is_seen = method == "get" and not path.startswith("/admin/v1/backups/")
    allowing = {"observe", "admin"} if is_seen else {"admin"}
    return allowing, "shop" if path.startswith(OF_NAMESPACE) else "*"


def test_every_operation_of_the_document_needs_its_permission(closed):
    """Routes times permissions: a token of one permission, on one namespace and on all of them."""
    server, root = closed
    paths = root.get("/openapi.json").json()["paths"]
    listed = root.put("/admin/v1/hot/pinned/ns/shop/kv/a").json()
    names = {"ns": "shop", "pk": "a", "sk": "b", "list": "pinned", "id": listed["id"], "name": "nothing", "caller": "nobody", "row": "0", "version": "9", "request_id": "nothing", "code": "forbidden", "route": "shards", "resource": "nothing", "load": "nothing", "part": "0", "backup": "nothing", "shard": "0", "piece": "0"}
    operations = [(method, path) for path, item in paths.items() for method in item]
    assert len(operations) > 40 and ({"admin"}, "*") in [needed(*one) for one in operations]
    assert all(item.keys() <= {"get", "head", "put", "post", "patch", "delete"} for item in paths.values())
    for permission in ("read", "write", "scan", "delegate", "observe", "admin"):
        for pattern in ("shop", "*", "games"):
            client = server.client(token=make(root, f"{permission}-walk", f"{permission}:{pattern}").json()["token"])
            for method, path in operations:
                wanted = needed(method, path)
                # What it would do is kept from being done: a body that cannot be read, a dry run, no such name.
                target = path.format(**names)
                if method == "delete" and path == "/admin/v1/namespaces/{ns}":
                    target += "?dry_run=true"
                answer = client.request(method.upper(), target, b"!" if method in ("put", "post", "patch") else b"")
                if wanted is None:
                    is_own = (method, path) == ("get", "/admin/v1/hot")
                    assert is_own or answer.status == 200, (permission, pattern, method, path, answer)
                    continue
                allowing, where = wanted
                is_allowed = permission in allowing and pattern in (where, "*")
                assert (answer.status != 403) == is_allowed, (permission, pattern, method, path, answer)


def test_criticality_claims_are_read(shared):
    server, root = shared
    made = make(root, "reader", "read:*", criticality_max="sheddable").json()
    assert made["criticality_max"] == "sheddable"
    client = server.client(token=made["token"])
    assert client.get("/v1/ns/shop/kv/a", Umbo_Criticality="critical-plus").status == 200
    client.get("/v1/ns/shop/kv/a", Umbo_Criticality="top").problem(400, "invalid-header")


def test_a_token_with_an_end(shared):
    server, root = shared
    made = make(root, "short", "read:*", ttl=1).json()
    client = server.client(token=made["token"])
    assert made["expires_at"] == made["created_at"] + 1_000
    server.clock.advance(0.999)
    assert client.get("/v1/ns/shop/kv/a").status == 200
    server.clock.advance(0.001)
    client.get("/v1/ns/shop/kv/a").problem(401, "unauthenticated")
    assert isinstance(Namespace(Client(server.port), "shop").get("a").json(), dict)
