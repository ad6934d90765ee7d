"""What can be known of costs: before (explain), afterwards (usage, metrics), and what if (simulate)."""

import re

import pytest

from harness import Namespace, wait_until
from quotas import (
    MICROS,
    NEVER,
    QUOTAS,
    Prices,
    charged,
    counters,
    limited,
    micros,
    policy,
    put_policy,
    rejected,
    rows_of,
    started,
    total,
    until_rejected,
    usage,
)

PRICES = Prices()
# Usage is kept by intervals of five seconds, and is recorded when one has ended.
RECORDED_SECONDS = 5


def explain(ns, operation, **more):
    headers = {name: more.pop(name) for name in list(more) if name.startswith("Umbo")}
    answer = ns.client.post(f"{ns.base}/explain", {"operation": operation} | more, **headers)
    assert answer.status == 200 and answer.headers["umbo-ru"] == "0", answer
    return answer.json()


def test_explain_says_what_a_write_will_cost(timeless):
    ns = timeless.namespace("explained")
    ns.put("warm", "s", b"x")
    for size in (0, 1, 4095, 1_000_000):
        found = explain(ns, "put", pk="p", sk="s", bytes=size)
        parts = found["breakdown"]
        assert abs(sum(parts.values()) - found["estimate_ru"]) <= 2 / MICROS
        assert abs(micros(found["estimate_ru"]) - charged(ns.put("p", "s", b"x" * size))) <= 2
        assert parts["base"] == 6 and parts["read_bytes"] == 0 and parts["latency"] <= 2 / MICROS
    assert micros(explain(ns, "delete", pk="p")["estimate_ru"]) >= PRICES.write()


def test_explain_learns_what_reads_cost(timeless):
    ns = timeless.namespace("learned")
    ns.put("small", value=b"x" * 100)
    rows = [{"pk": "large", "sk": f"{n:04}", "v": "x" * 1000} for n in range(500)]
    assert ns.write(rows).status == 200
    new = explain(ns, "range", pk="large", limit=500)
    assert new["samples"] == 0
    for _ in range(40):
        cost = charged(ns.range("large", limit=500))
    known = explain(ns, "range", pk="large", limit=500)
    assert known["samples"] >= 40
    assert abs(micros(known["estimate_ru"]) - cost) <= 0.05 * cost, (known, cost)
    # Whatever was learned: no more than the request allows.
    assert micros(explain(ns, "range", pk="large", limit=1)["estimate_ru"]) < cost / 10
    get = explain(ns, "get", pk="small")
    assert micros(get["estimate_ru"]) < 3 * MICROS, "of gets nothing large was seen"


def test_explain_names_shards_and_policies_and_takes_nothing(server, ns):
    name = limited(server, ns, only=2, per=["caller"])
    shard = limited(server, ns, f"shard-{ns.name}", only=9, scope="shard")
    shadow = limited(server, ns, f"shadow-{ns.name}", only=2, mode="shadow")
    other = limited(server, ns, f"put-{ns.name}", match={"operations": ["put"]})
    for _ in range(10):
        found = explain(ns, "get", pk="a", sk="b")
    met = {each["name"]: each for each in found["policies"]}
    assert {name, shard, shadow, "default-caller"} <= set(met) and other not in met
    own = met[name]
    assert (own["mode"], own["scope"], own["unit"]) == ("enforce", "pod", "requests")
    assert own["label"] == "caller=anonymous"
    assert (own["rate"], own["burst"], own["balance"], own["price"]) == (NEVER, 1.5, 1.5, 1)
    assert own["admits"] is True and own["wait_ms"] == 0
    ((where,),) = [found["shards"]]
    assert where["share"] == 1 and met[shard]["shard"] == where["shard"]
    assert met[shadow]["mode"] == "shadow"
    assert until_rejected(lambda: ns.get("a", "b"), 3)[0] == 2
    spent = {each["name"]: each for each in explain(ns, "get", pk="a", sk="b")["policies"]}
    assert spent[name]["admits"] is False and spent[name]["wait_ms"] >= 50
    assert -0.5 <= spent[name]["balance"] < 0
    assert spent[shadow]["admits"] is True, "a shadow never refuses"
    everything = explain(ns, "scan")
    assert len(everything["shards"]) > 1
    assert abs(sum(one["share"] for one in everything["shards"]) - 1) < 1e-6
    keys = [{"pk": f"k{n}"} for n in range(50)]
    assert len(explain(ns, "multi-get", keys=keys)["shards"]) > 1
    assert len(explain(ns, "batch-write", keys=keys, bytes=100)["shards"]) > 1


def test_explain_answers_for_whoever_pays(server, ns):
    limited(server, ns, only=2, per=["user"])
    for who, policies in (("u", 2), (None, 1)):
        headers = {"Umbo_User": who} if who else {}
        found = explain(ns, "get", pk="a", **headers)
        assert len(found["policies"]) == policies, found


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "[]",
        '{"operation":"fly"}',
        '{"operation":"explain","pk":"a"}',
        '{"operation":"admin","pk":"a"}',
        '{"operation":"get"}',
        '{"operation":"get","pk":""}',
        '{"operation":"get","pk":"a","pk64":"YQ"}',
        '{"operation":"get","pk64":"*"}',
        '{"operation":"get","pk":"a","more":1}',
        '{"operation":"put","pk":"a","bytes":-1}',
        '{"operation":"put","pk":"a","bytes":1e99}',
        '{"operation":"range","pk":"a","limit":0}',
        '{"operation":"range","pk":"a","max_bytes":0}',
        '{"operation":"multi-get","keys":[{"pk":"a"},{}]}',
        '{"operation":"get","pk":5}',
    ],
)
def test_what_cannot_be_explained(server, ns, body):
    answer = ns.client.post(f"{ns.base}/explain", body)
    assert answer.status == 400, answer
    answer.problem(400, answer.json()["type"].rsplit("/", 1)[1])


def test_explain_is_for_readers_and_usage_too(closed):
    closed.namespace("shop")
    closed.namespace("games")
    writer = Namespace(closed.caller("writer", "write:shop"), "shop")
    reader = Namespace(closed.caller("reader", "read:shop"), "shop")
    admin = Namespace(closed.caller("boss", "read,admin:shop"), "shop")
    for n in range(3):
        assert writer.put("a", value=b"x" * n).status < 300
        assert reader.get("a").status == 200
    reader.client.get("/v1/ns/games/usage").problem(403, "forbidden")
    writer.client.get("/v1/ns/shop/usage").problem(403, "forbidden")
    writer.client.post("/v1/ns/shop/explain", {"operation": "get", "pk": "a"}).problem(403, "forbidden")
    closed.server.client().get("/v1/ns/shop/usage").problem(401, "unauthenticated")
    reader.client.get("/v1/ns/nowhere/usage").problem(403, "forbidden")
    own = usage(reader.client, "shop")
    assert {(row["caller"], row["operation"]) for row in own["rows"]} == {("reader", "get")}
    assert own["shards"] == [], "what others spent on shards is not shown either"
    everybody = usage(admin.client, "shop")
    assert {row["caller"] for row in everybody["rows"]} == {"reader", "writer"}
    assert total(everybody["shards"], "requests") == 6
    assert usage(closed.root, "games")["rows"] == []
    closed.root.get("/v1/ns/nowhere/usage").problem(404, "namespace-not-found")
    closed.root.get("/v1/ns/shop/usage?all=true").problem(400, "invalid-query")


def test_metrics_of_quotas(server, ns):
    name = limited(server, ns, only=2, per=["user"])
    for user in ("a", "b"):
        for _ in range(4):
            ns.get("k", Umbo_User=user)
    for _ in range(20):
        assert ns.get("k").status == 404
    text = server.admin().get("/metrics").body.decode()
    for line in (
        rf'umbo_policy_rejected_total\{{policy="{name}"\}} 4',
        rf'umbo_policy_buckets\{{policy="{name}"\}} 2',
        rf'umbo_policy_utilisation_ratio\{{policy="{name}"\}} \d\S*',
        r'umbo_request_units_total\{operation="get"\} \d+\.\d+',
        r'umbo_requests_admitted_total\{operation="get"\} \d+',
        r'umbo_requests_rejected_total\{operation="get"\} \d+',
        r'umbo_requests_total\{operation="get",status="429"\} \d+',
        r'umbo_refused_total\{code="quota-exceeded",kind="rejected"\} \d+',
        r'umbo_caller_request_units_total\{caller="anonymous"\} \d+\.\d+',
        r'umbo_estimates_total\{operation="get",ratio="\+Inf"\} \d+',
        r'umbo_estimated_request_units_total\{operation="get"\} \d+\.\d+',
        r'umbo_sampled_request_units_total\{operation="get"\} \d+\.\d+',
    ):
        assert re.search(f"^{line}$", text, re.M), line
    for family in re.findall(r"^# TYPE (umbo_(?:policy|caller|estimate|request_units)\S+)", text, re.M):
        assert f"# HELP {family} " in text, family


def test_only_so_many_callers_have_a_series(server, ns):
    for number in range(40):
        ns.get("k", Umbo_Quota_User=f"series-{number}")
    text = server.admin().get("/metrics").body.decode()
    assert 1 <= len(re.findall(r"^umbo_caller_request_units_total\{", text, re.M)) <= 20


def simulate(client, body, **more):
    answer = client.post(f"{QUOTAS}/simulate", {"policy": body} | more)
    assert answer.status == 200, answer
    return answer.json()


def test_simulate_says_what_a_policy_would_have_refused(new_server):
    """Recorded usage against a policy that does not exist, which then is made and does the same."""
    server = started(new_server())
    ns = server.namespace()
    users = {"low": 5, "high": 60}
    for user, requests in users.items():
        for _ in range(requests):
            assert ns.get("a", Umbo_Quota_User=user).status == 404
    proposed = policy("proposed", only=10, per=["caller"])
    server.clock.advance(RECORDED_SECONDS)
    wait_until(lambda: simulate(ns.client, proposed)["requests"] >= 65, "usage is recorded")
    found = simulate(ns.client, proposed)
    assert found["requests"] == 65 and 0 < found["seconds"] < 600
    assert found["policy"]["burst"] == 9.5 and found["policy"]["mode"] == "enforce"
    rows = {row["label"]: row for row in found["rows"]}
    assert set(rows) == {"caller=low", "caller=high"}
    assert rows["caller=low"]["rejected"] == 0
    # Usage is kept by the second or so, so that a burst may be a little off.
    assert 45 <= rows["caller=high"]["rejected"] == found["rejected"] <= 55
    assert rows["caller=high"]["rejected_amount"] == rows["caller=high"]["rejected"]
    assert found["rows"][0]["label"] == "caller=high", "the most refused first"
    # Nothing came into effect by it.
    ns.client.get(f"{QUOTAS}/proposed").problem(404, "quota-not-found")
    assert ns.get("a", Umbo_Quota_User="high").status == 404
    enough = simulate(ns.client, policy("proposed", 1_000_000, per=["caller"]))
    assert enough["rejected"] == 0 and enough["requests"] >= 65
    none = simulate(ns.client, proposed | {"match": {"caller": "nobody"}})
    assert (none["requests"], none["rejected"], none["rows"]) == (0, 0, [])
    puts = simulate(ns.client, proposed | {"match": {"operations": ["put"]}})
    assert puts["requests"] == 0
    put_policy(ns.client, proposed)
    served = [rejected(ns.get("a", Umbo_Quota_User="high")) for _ in range(60)]
    assert served.count(False) == 10


def test_simulate_in_request_units(new_server):
    server = started(new_server())
    ns = server.namespace()
    costs = [charged(ns.put("a", value=b"x" * 40_960)) for _ in range(20)]
    spent = sum(costs)
    unit = {"unit": "ru", "burst": 50, "per": ["namespace"]}
    server.clock.advance(RECORDED_SECONDS)
    wait_until(
        lambda: simulate(ns.client, policy("p", **unit))["requests"] == 20, "usage is recorded"
    )
    found = simulate(ns.client, policy("p", **unit))
    (row,) = found["rows"]
    assert row["label"] == "namespace=demo"
    assert abs(micros(round(row["ru"], 6)) - spent) <= 0.02 * spent
    # A put costs about 16: four fit into 50, the last of them with debt.
    assert 14 <= found["rejected"] <= 17
    assert found["rejected_amount"] if "rejected_amount" in found else row["rejected_amount"] > 200


def test_utilisation_and_observed_tell_how_busy(server, ns):
    name = limited(server, ns, rate=10, burst=10)
    # Twenty a second, of which ten are served.
    for _ in range(25):
        for _ in range(2):
            ns.get("a")
        server.clock.advance(0.1)
    found = counters(ns.client, name)
    assert found["utilisation"] > 1 and found["rejected"] > 0
    (user,) = ns.client.get(f"{QUOTAS}/{name}/users").json()["users"]
    assert user["observed"] > 10 and user["label"] == "everything"
    answer = ns.get("a")
    if rejected(answer):
        assert answer.json()["observed"] > 10


def test_what_a_policy_did_is_what_its_users_saw(server, ns):
    name = limited(server, ns, only=7, per=["user"])
    seen = [rejected(ns.get("a", Umbo_User=f"u{n % 3}")) for n in range(60)]
    found = counters(ns.client, name)
    assert found["rejected"] == seen.count(True) == 60 - 21
    if "admitted" in found:
        assert found["admitted"] == 21
    assert found["buckets"] == 3
    assert total(rows_of(usage(ns.client, ns.name)), "rejected") == 39
