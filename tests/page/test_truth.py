"""The page tells the truth: the bucket in effect, requests of services alone, and what the token may do."""

import json

import pytest

from harness import Namespace
from staged import Stage
from test_views import cut_off

pytestmark = pytest.mark.real("chromium")


@pytest.fixture
def quiet(new_server):
    """A server without load, whose clock stands still between the seconds of its stage."""
    server = new_server().start()
    server.namespace("listings")
    server.stage = Stage(server)
    return server


def set_policy(client, policy, **headers):
    path = f"/admin/v1/quotas/{policy['name']}"
    if client.get(path).status == 200:
        headers["If_Match"] = "*"
    answer = client.put(path, json.dumps(policy), **headers)
    assert answer.status in (200, 201), answer.body


def tile(window, label):
    return window.page.locator(".tile", has=window.page.locator(".tile-label", has_text=label)).locator(".tile-value").inner_text().replace("\u2009", "")


def cells(row):
    return {cell.get_attribute("data-label"): cell.inner_text() for cell in row.locator("td").all()}


def test_the_page_itself_is_in_no_figure_and_mistakes_of_clients_are_no_failures(quiet, window):
    one = window(quiet).open()
    one.rounds(6)
    # The page has asked for more than ten answers a second, and no client for any.
    assert [tile(one, name) for name in ("Served", "Rejected", "Shed", "Failed")] == ["0/s"] * 4
    assert tile(one, "Request units") == "0RU/s"
    client = quiet.client()
    quiet.stage.work = [lambda: [client.get("/v1/ns/nowhere/kv/a") for _ in range(8)]]
    one.until(lambda: "refused (invalid)" in one.text() and "0 refused" not in one.page.locator(".tile.failed").inner_text(), "they are seen")
    assert tile(one, "Failed") == "0/s" and tile(one, "Served") == "0/s"
    legends = one.page.locator("figure", has_text="By tier").locator(".legend-label").all_inner_texts()
    operations = one.page.locator("figure", has_text="By operation").locator(".legend-label").all_inner_texts()
    assert not {"unknown"} & set(legends) and not {"admin", "service"} & set(operations), (legends, operations)
    one.check()


def test_the_bucket_in_effect_is_shown_after_each_change(quiet, window):
    client = quiet.client()
    ns = Namespace(client, "listings")
    policy = {"name": "cap", "match": {"caller": "crawler"}, "per": ["caller"], "unit": "requests", "rate": 200}
    quiet.stage.work = [lambda: [ns.get("a", Umbo_Quota_User="crawler") for _ in range(20)]]
    for change in ({"mode": "enforce"}, {"mode": "shadow"}, {"mode": "enforce"}, {"mode": "enforce", "rate": 5}):
        policy |= change
        set_policy(client, policy)
        quiet.stage.second()
        users = client.get("/admin/v1/quotas/cap/users").json()["users"]
        assert [(user["label"], user["limit"]["rate"]) for user in users] == [("caller=crawler", policy["rate"])]
    one = window(quiet).open("callers/crawler")
    row = one.page.get_by_role("table", name="Policies with what is left").locator("tbody tr", has_text="cap")
    one.until(lambda: row.count() == 1 and cells(row)["Limit/s"] == "5", "the bucket in effect is shown")
    one.until(lambda: cells(row)["Asked/s"] != "0" and cells(row)["Rejected"] != "0", "with what was asked of it")
    one.check()


def test_the_last_refusals_are_listed_before_anything_is_typed(quiet, window):
    client = quiet.client()
    for caller in ("first", "second"):
        refused = client.get("/v1/ns/nowhere/kv/a", Umbo_Quota_User=caller).problem(404, "namespace-not-found")
    one = window(quiet).open("why")
    table = one.page.get_by_role("table", name="Last refusals")
    one.until(lambda: table.locator("tbody tr").count() == 1, "they are listed")
    row = table.locator("tbody tr").first
    assert cells(row)["Count"] == "2" and "namespace-not-found" in row.inner_text(), row.inner_text()
    row.get_by_role("link").last.click()
    one.sees("What happened")
    one.until(lambda: not table.is_visible(), "the answer is in their place")
    assert refused["request_id"] in one.page.url
    one.check()


def test_an_observer_is_offered_no_change(quiet, window):
    root = quiet.client().post("/admin/v1/tokens", {"name": "root", "grants": ["*:*"]}).json()["token"]
    client = quiet.client(token=root)
    quiet.stage.token = root
    make = lambda name, grants: client.post("/admin/v1/tokens", {"name": name, "grants": grants}).json()["token"]
    tokens = {"none": make("desk", ["observe:*"]), "some": make("shop", ["observe:*", "admin:listings"]), "all": root}
    assert client.put("/admin/v1/hot/pinned/ns/listings/kv/a", b"{}").status in (200, 201)
    policy = {"name": "cap", "per": ["caller"], "unit": "requests", "rate": 200}
    assert client.put("/admin/v1/quotas/cap", json.dumps(policy)).status == 201
    for may, token in tokens.items():
        assert quiet.client(token=token).get("/admin/v1/tokens/self").status == 200
        one = window(quiet).open("hot")
        one.until(lambda: one.page.locator("dialog").is_visible(), "a token is asked for")
        one.page.get_by_label("Token", exact=True).fill(token)
        one.page.get_by_role("button", name="Use it").click()
        one.until(lambda: one.row("listings").count() == 1, "the key is shown")
        one.until(lambda: one.page.locator("body").get_attribute("data-may") == may, "it is known what the token may")
        for button in ("Block a key…", "Unpin"):
            assert (one.page.get_by_role("button", name=button).count() > 0) == (may != "none"), (may, button)
        one.open("quotas/cap")
        one.sees("200 requests a second")
        assert one.page.get_by_role("button", name="1. Simulate").is_visible() == (may == "all")
        assert one.page.get_by_role("button", name="Remove…").is_visible() == (may == "all")
        one.open("quotas/+new")
        one.until(lambda: ("may not change policies" in one.text()) == (may != "all"), "it is said why there is no form")
        # Before there was a token, the browser was told so.
        one.complaints[:] = [text for text in one.complaints if "401" not in text]
        one.check()


def test_events_are_read_on_a_phone(quiet, window):
    client = quiet.client()
    policy = {"name": "cap-" + "x" * 50, "match": {"caller": "crawler"}, "per": ["caller"], "unit": "requests", "rate": 20}
    for rate in (20, 30):
        set_policy(client, policy | {"rate": rate}, Umbo_Reason="r" * 200)
    created = client.post("/admin/v1/tokens", {"name": "desk", "grants": ["*:*"]})
    assert created.status == 201
    quiet.stage.token = created.json()["token"]
    for width in (390, 1440):
        one = window(quiet)
        one.page.set_viewport_size({"width": width, "height": 900})
        one.open("events")
        one.until(lambda: one.page.locator("dialog").is_visible(), "a token is asked for")
        one.page.get_by_label("Token", exact=True).fill(created.json()["token"])
        one.page.get_by_role("button", name="Use it").click()
        one.sees("rate: 20 → 30")
        one.sees("match.caller: – → crawler")
        assert '{"' not in one.page.locator("main").inner_text()
        assert cut_off(one) == [], width
        one.complaints[:] = [text for text in one.complaints if "401" not in text]
        one.check()


def test_a_slower_shard_has_the_higher_figure(quiet, window):
    one = window(quiet)
    answer = quiet.client().get("/admin/v1/shed").json()
    answer["shards"][0]["classes"] = [
        {"class": "point-read", "overloaded": False, "pressure": 0.0, "ratio": 4.0, "p95_ms": 1.0, "normal_p95_ms": 4.0, "samples": 9},
        {"class": "write", "overloaded": True, "pressure": 0.5, "ratio": 0.25, "p95_ms": 40.0, "normal_p95_ms": 10.0, "samples": 9},
    ]
    one.page.route("**/admin/v1/shed", lambda route: route.fulfill(json=answer))
    one.open("overload")
    row = one.page.get_by_role("table", name="Shards now").locator("tbody tr").first
    one.until(lambda: row.count() == 1 and cells(row)["Slower than usual"] == "×\u20094", "the slowest class counts, upwards")
    assert cells(row)["p95"] == "40\u2009ms" and cells(row)["Normal p95"] == "10\u2009ms"
    one.check()
