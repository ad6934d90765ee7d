"""Who pays: the caller of the credential, or whom a caller with the grant `delegate` names."""

import json
import re

import pytest

from harness import Namespace
from processes import wait_until
from quotas import limited, policy, put_policy, rejected, rows_of, total, usage

WHO = ["Umbo-Quota-User", "Umbo-User", "Umbo-Session", "Umbo-Org"]
DIMENSION_FIELDS = {
    "caller": "Umbo-Quota-User",
    "user": "Umbo-User",
    "session": "Umbo-Session",
    "org": "Umbo-Org",
}


@pytest.fixture
def proxied(closed):
    """A namespace, a proxy that may delegate in it, and one that may not."""
    closed.namespace("shop")
    closed.namespace("games")
    proxy = Namespace(closed.caller("proxy", "read,write,delegate:shop", "read:games"), "shop")
    plain = Namespace(closed.caller("plain", "read,write:shop"), "shop")
    return closed, proxy, plain


@pytest.mark.parametrize("dimension", DIMENSION_FIELDS)
def test_each_name_has_a_bucket_of_its_own(server, ns, dimension):
    name = limited(server, ns, per=[dimension], only=2)
    field = DIMENSION_FIELDS[dimension]
    for value in ("a", "b", "A", "a/b"):
        got = [rejected(ns.get("k", **{field: value})) for _ in range(3)]
        assert got == [False, False, True], value
    users = ns.client.get(f"/admin/v1/quotas/{name}/users").json()
    assert {user["label"] for user in users["users"]} == {
        f"{dimension}={value}" for value in ("a", "b", "A", "a/b")
    }
    assert users["total"] == 4 and all(user["rejected"] == 1 for user in users["users"])


def test_tuples_of_names(server, ns):
    limited(server, ns, per=["org", "user"], only=2)
    pairs = [("o1", "u1"), ("o1", "u2"), ("o2", "u1"), ("o1u", "1"), ("o", "1u1")]
    for org, user in pairs * 2:
        assert not rejected(ns.get("a", Umbo_Org=org, Umbo_User=user)), (org, user)
    for org, user in pairs:
        assert rejected(ns.get("a", Umbo_Org=org, Umbo_User=user)), (org, user)


def test_a_request_without_the_name_is_not_counted(server, ns):
    limited(server, ns, per=["user"], only=2)
    limited(server, ns, f"org-{ns.name}", match={"org": "*"}, only=2)
    for _ in range(5):
        answer = ns.get("a")
        assert answer.status == 404 and "umbo-charged-to" not in answer.headers
    assert [rejected(ns.get("a", Umbo_Org="x")) for _ in range(3)] == [False, False, True]


def test_with_the_grant_others_pay(proxied):
    closed, proxy, _ = proxied
    put_policy(closed.root, policy("each", only=2, per=["caller"], match={"namespace": "shop"}))
    answer = proxy.get("a", Umbo_Quota_User="search")
    assert answer.headers["umbo-charged-to"] == "search"
    assert not rejected(proxy.get("a", Umbo_Quota_User="search"))
    spent = proxy.get("a", Umbo_Quota_User="search")
    assert rejected(spent) and spent.headers["umbo-charged-to"] == "search"
    assert not rejected(proxy.get("a", Umbo_Quota_User="ads")), "others are not touched"
    assert [rejected(proxy.get("a")) for _ in range(3)] == [False, False, True], "nor is its own"
    report = usage(closed.root, "shop")
    assert total(rows_of(report, "search"), "requests") == 2
    assert total(rows_of(report, "proxy"), "requests") == 2
    full = {"Umbo-Quota-User": "x", "Umbo-User": 'a"\\b', "Umbo-Session": "s", "Umbo-Org": "o"}
    answer = proxy.get("a", **full)
    assert answer.headers["umbo-charged-to"] == 'x;user="a\\"\\\\b";session="s";org="o"'


def test_without_the_grant_names_are_ignored(proxied):
    closed, _, plain = proxied
    put_policy(closed.root, policy("each", only=3, per=["caller"], match={"namespace": "shop"}))
    put_policy(closed.root, policy("users", only=2, per=["user"]))
    put_policy(closed.root, policy("trap", only=2, match={"org": "*"}))
    answers = [
        plain.get("a", Umbo_Quota_User=f"victim-{n}", Umbo_User="u", Umbo_Org="o") for n in range(5)
    ]
    assert [rejected(answer) for answer in answers] == [False] * 3 + [True] * 2
    assert {answer.headers["umbo-charged-to"] for answer in answers} == {"plain"}
    assert answers[-1].json()["policy"] == "each"
    callers = {row["caller"] for row in usage(closed.root, "shop")["rows"]}
    assert callers == {"plain"}, "nobody else was charged or even named"


def test_the_grant_is_of_a_namespace(proxied):
    closed, proxy, _ = proxied
    games = Namespace(proxy.client, "games")
    assert games.get("a", Umbo_Quota_User="x").headers["umbo-charged-to"] == "proxy"
    assert proxy.get("a", Umbo_Quota_User="x").headers["umbo-charged-to"] == "x"


def test_a_name_opens_no_door(proxied):
    """Quotas only: what may be done is decided by the credential."""
    closed, proxy, plain = proxied
    for ns in (proxy, plain):
        headers = {"Umbo-Quota-User": "root"}
        ns.client.get("/admin/v1/quotas", **headers).problem(403, "forbidden")
        ns.scan(headers=headers).problem(403, "forbidden")
    anonymous = Namespace(closed.server.client(), "shop")
    anonymous.get("a", Umbo_Quota_User="root").problem(401, "unauthenticated")


BAD = ["", "a b", "x" * 129, "caf\u00e9", "tab\tin"]


@pytest.mark.parametrize("field", WHO)
def test_names_that_are_none(proxied, field):
    _, proxy, plain = proxied
    for value in BAD:
        bad = value.encode("latin-1")
        answer = proxy.get("a", **{field: bad})
        assert answer.problem(400, "invalid-header")["detail"].lower().count(field.lower()), answer
        assert answer.headers["umbo-ru"] == "0"
        ignored = plain.get("a", **{field: bad})
        assert ignored.status == 404, ignored
        assert ignored.headers["umbo-charged-to"] == "plain"
    assert proxy.get("a", **{field: "x" * 128}).status == 404


def test_any_name_is_told_apart_in_books_and_metrics(new_server):
    """Whatever can be written is one caller: in no metric two, and never those nobody remembers."""
    server = new_server({"quota": {"accounts_max": 64}}).start()
    ns = server.namespace()
    for number in range(300):
        ns.get("a", Umbo_Quota_User=f"filler-{number}")
    odd = ['a"b\\c', "{x}", "#", "(others)", "a=b,c=d", "%41", "x" * 128, "'"]
    for _ in range(3):
        for name in odd:
            assert ns.put("a", Umbo_Quota_User=name).headers["umbo-charged-to"] == name

    def labels():
        text = server.admin().get("/metrics").body.decode()
        lines = [line for line in text.splitlines() if line.startswith("umbo_caller_request_units")]
        return {re.fullmatch(r'umbo_caller_request_units_total\{caller="(.*)"\} [0-9.]+', line)[1] for line in lines}

    # Who uses most is found out once in a while.
    escaped = {name.replace("\\", "\\\\").replace('"', '\\"') for name in odd}
    wait_until(lambda: escaped <= labels(), "all are told apart")
    report = usage(ns.client, "demo")
    callers = [(row["caller"], row["operation"]) for row in report["rows"]]
    assert len(set(callers)) == len(callers), "each has one row for what it did"
    assert total(report["rows"], "requests") == 300 + 3 * len(odd)


def test_a_name_twice_is_no_name(server, ns):
    head = f"GET {ns.path('a')} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    twice = head + "Umbo-Quota-User: a\r\nUmbo-Quota-User: b\r\n\r\n"
    with server.raw(twice.encode()) as sock, sock.makefile("rb") as reader:
        answer = reader.read()
    assert answer.startswith(b"HTTP/1.1 400") and b"umbo-quota-user" in answer.lower()


def test_attempts_are_read_and_counted(server, ns):
    before = server.metric("umbo_requests_repeated_total")
    for attempt in ("1", "2", "3", "100"):
        assert ns.get("a", Umbo_Attempt=attempt).status == 404
    for attempt in ("0", "101", "-1", "two", "1.5", "", "99999999999999999999"):
        ns.get("a", Umbo_Attempt=attempt).problem(400, "invalid-header")
    assert server.metric("umbo_requests_repeated_total") - before == 3


def test_the_most_specific_override_counts(server, ns):
    name = f"of-{ns.name}"
    body = policy(
        name,
        only=10,
        per=["caller", "user"],
        match={"namespace": ns.name},
        overrides=[
            {"match": {"caller": "search*"}, "rate": 0.001, "burst": 1.5},
            {"match": {"caller": "search-web*"}, "rate": 0.001, "burst": 2.5},
            {"match": {"caller": "search-web"}, "rate": 0.001, "burst": 3.5},
            {"match": {"caller": "search-web", "user": "vip"}, "rate": 0.001, "burst": 4.5},
            {"match": {"user": "vi*"}, "rate": 0.001, "burst": 5.5},
        ],
    )
    put_policy(server.client(), body)
    for caller, user, burst in [
        ("other", "u", 10),
        ("search", "u", 2),
        ("search-w", "u", 2),
        ("search-web2", "u", 3),
        ("search-web", "u", 4),
        ("search-web", "vip", 5),
        ("other", "vip", 6),
        ("search-x", "vip", 2),
    ]:
        headers = {"Umbo-Quota-User": caller, "Umbo-User": user}
        served = 0
        while not rejected(answer := ns.get("a", **headers)):
            served += 1
        assert served == burst == answer.json()["limit"]["burst"] + 0.5, (caller, user, served)
    shown = ns.client.get(f"/admin/v1/quotas/{name}").json()["policy"]
    assert json.dumps(shown["overrides"]) == json.dumps(body["overrides"])
