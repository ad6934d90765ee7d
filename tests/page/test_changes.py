"""What an operator changes with the page, tokens and what they may, and a server that is away."""

import json

import pytest

from harness import Cluster, wait_until

pytestmark = pytest.mark.real("chromium")


def dialog(window):
    return window.page.locator("dialog")


def give_token(window, token):
    window.until(lambda: dialog(window).is_visible(), "a token is asked for")
    window.page.get_by_label("Token", exact=True).fill(token)
    window.page.get_by_role("button", name="Use it").click()


def make_token(client, name, grant):
    answer = client.post("/admin/v1/tokens", {"name": name, "grants": [grant]})
    assert answer.status == 201, answer
    return answer.json()["token"]


@pytest.fixture
def closed(new_server):
    """A server with a namespace and tokens: everything, and observing."""
    server = new_server().start()
    root = make_token(server.client(), "root", "*:*")
    client = server.client(token=root)
    assert client.put("/admin/v1/namespaces/shop").status == 201
    assert client.put("/v1/ns/shop/kv/a", b"x").status == 201
    return server, root, make_token(client, "desk", "observe:*")


def test_a_token_is_asked_for_and_kept_in_memory_only(closed, window):
    server, root, observer = closed
    one = window(server).open()
    give_token(one, "umbo_wrong_token")
    one.until(lambda: dialog(one).is_visible() and dialog(one).locator(".problem").count() == 1, "it is refused in words")
    give_token(one, observer)
    one.sees("Live")
    one.until(lambda: not dialog(one).is_visible(), "it is enough")
    assert one.page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    for view in ("callers", "heat", "hot", "quotas", "overload", "storage", "events", "why"):
        one.open(view)
        current = lambda: one.page.locator("nav a[aria-current]").get_attribute("data-view")
        one.until(lambda view=view: current() == view, "the view is shown")
        if view not in ("events", "why"):
            one.rounds(2)
        assert one.page.locator("#problems .problem").count() == 0, (view, one.text())
        assert not dialog(one).is_visible()
    assert observer not in json.dumps(one.requests)
    one.page.reload()
    one.until(lambda: dialog(one).is_visible(), "the token is gone with the page")
    # A refusal without a token is an answer of 401, of which the browser's console tells.
    one.complaints[:] = [text for text in one.complaints if "401" not in text]
    one.check()


def test_a_refusal_of_an_earlier_token_asks_for_no_other(closed, window):
    server, root, _ = closed
    one = window(server)
    held = []
    # One read of the first round has no answer until the token is there; those beside it were refused by then.
    one.page.route("**/admin/v1/shards", lambda route: held.append(route) if not held else route.continue_())
    one.open("storage")
    give_token(one, root)
    one.sees("Live")
    one.until(lambda: not dialog(one).is_visible(), "the token is enough")
    with one.page.expect_response(lambda answer: answer.url.endswith("/admin/v1/shards") and answer.ok):
        held[0].continue_()
    one.rounds(2)
    assert not dialog(one).is_visible()
    one.sees("Live")


def test_an_admin_of_another_namespace_is_told_what_it_may_not(closed, window):
    server, root, _ = closed
    grants = {"name": "other", "grants": ["observe:*", "admin:other"]}
    other = server.client(token=root).post("/admin/v1/tokens", grants).json()["token"]
    server.client(token=root).put("/admin/v1/hot/pinned/ns/shop/kv/a", b"{}")
    one = window(server).open("hot")
    give_token(one, other)
    one.sees("pinned")
    one.row("shop").get_by_role("button", name="Unpin").click()
    dialog(one).get_by_role("button", name="Unpin").click()
    one.sees("admin")
    assert one.page.locator(".flash.bad").count() == 1
    keys = server.client(token=root).get("/admin/v1/hot").json()["keys"]
    assert keys[0]["standing"] == "pinned"


def test_a_token_without_the_permission_is_refused_in_words(closed, window):
    server, root, _ = closed
    reader = make_token(server.client(token=root), "reader", "read:*")
    one = window(server).open("overload")
    give_token(one, reader)
    one.sees("observe")
    one.page.get_by_role("button", name="Use another token").click()
    give_token(one, root)
    one.sees("Shards now")
    one.until(lambda: one.page.locator("#problems .problem").count() == 0, "nothing is wrong any more")


def test_a_key_is_blocked_and_unblocked(loaded, window):
    one = window(loaded).open("hot")
    client = loaded.client()
    row = one.row("listing-3")
    assert client.put("/admin/v1/hot/pinned/ns/listings/kv/listing-3", b"{}").status in (200, 201)
    one.until(lambda: row.count() == 1, "the key is shown")
    row.get_by_role("button", name="Block").click()
    dialog(one).get_by_label("Reason").fill("crawler of <b>search</b>")
    dialog(one).get_by_role("button", name="Cancel").click()
    assert client.get("/v1/ns/listings/kv/listing-3").status == 200
    row.get_by_role("button", name="Block").click()
    dialog(one).get_by_label("Reason").fill("crawler of <b>search</b>")
    dialog(one).get_by_label("For how long").select_option("1h")
    dialog(one).get_by_role("button", name="Block").click()
    wait_until(lambda: client.get("/v1/ns/listings/kv/listing-3").status == 429, "reads are refused")
    one.until(lambda: "blocked" in row.inner_text() and "<b>search</b>" in row.inner_text(), "it is shown")
    row.get_by_role("button", name="Unblock").click()
    dialog(one).get_by_role("button", name="Unblock").click()
    wait_until(lambda: client.get("/v1/ns/listings/kv/listing-3").status == 200, "reads are served")
    row.get_by_role("button", name="Unpin").click()
    dialog(one).get_by_role("button", name="Unpin").click()
    one.until(lambda: row.count() == 0, "it is off the lists")
    one.check()


def test_a_key_is_blocked_by_its_name(loaded, window):
    one = window(loaded).open("hot")
    one.page.get_by_role("button", name="Block a key…").click()
    dialog(one).get_by_label("Namespace").fill("listings")
    dialog(one).get_by_label("Partition key").fill("AP8B_g")
    dialog(one).get_by_label("Keys are written as").select_option("b64u")
    dialog(one).get_by_role("button", name="Continue").click()
    dialog(one).get_by_role("button", name="Block").click()
    one.until(lambda: one.row("\\x00\\xff\\x01\\xfe").count() == 1, "the binary key is blocked")
    one.check()


def test_a_policy_is_simulated_checked_and_set(loaded, window):
    one = window(loaded).open("quotas/+new")
    client, page = loaded.client(), one.page
    wait_until(lambda: client.get("/admin/v1/callers").json()["total"] >= 4, "there is something to replay")
    page.get_by_label("Name", exact=True).fill("slow-search")
    page.get_by_label("Caller", exact=True).fill("search")
    page.get_by_label("Rate", exact=True).fill("2")
    page.get_by_label("Unit").select_option("requests")
    page.get_by_label("Reason").fill("search is too fast; why <not>")
    set_it = page.get_by_role("button", name="3. Set")
    assert set_it.is_disabled()
    page.get_by_role("button", name="1. Simulate").click()
    one.sees("would have been rejected")
    curve = page.locator(".curve canvas")
    one.until(lambda: (curve.get_attribute("aria-label") or "").count("requests/s") >= 8, "the curve is drawn")
    assert set_it.is_disabled() and client.get("/admin/v1/quotas/slow-search").status == 404
    one.until(lambda: not page.get_by_role("button", name="2. Dry run").is_disabled(), "it may be checked")
    page.get_by_role("button", name="2. Dry run").click()
    one.sees("Dry run: nothing is changed yet.")
    assert client.get("/admin/v1/quotas/slow-search").status == 404
    one.until(lambda: not set_it.is_disabled(), "it may be set")
    # What was checked is what is set: a change of the form begins anew.
    page.get_by_label("Rate", exact=True).fill("3")
    assert set_it.is_disabled()
    page.get_by_role("button", name="1. Simulate").click()
    one.until(lambda: not page.get_by_role("button", name="2. Dry run").is_disabled(), "it may be checked")
    page.get_by_role("button", name="2. Dry run").click()
    one.until(lambda: not set_it.is_disabled(), "it may be set")
    set_it.click()
    one.sees("is in effect")
    assert client.get("/admin/v1/quotas/slow-search").json()["policy"]["rate"] == 3
    one.open("events")
    one.sees("policy-changed")
    one.sees("search is too fast; why")
    one.open("quotas/slow-search")
    one.sees("3 requests a second")
    page.get_by_role("button", name="Remove…").click()
    dialog(one).get_by_role("button", name="Remove").click()
    wait_until(lambda: client.get("/admin/v1/quotas/slow-search").status == 404, "it is removed")
    one.check()


def test_a_policy_that_is_wrong_is_refused_in_words(loaded, window):
    one = window(loaded).open("quotas/+new")
    one.page.get_by_label("Name", exact=True).fill("wrong")
    one.page.get_by_label("Rate", exact=True).fill("a lot")
    one.page.get_by_role("button", name="1. Simulate").click()
    one.sees("a lot")
    assert one.page.locator(".flash.bad").count() >= 1
    assert one.page.get_by_role("button", name="3. Set").is_disabled()


def test_a_change_is_a_mark_in_the_charts_at_once(loaded, window):
    one = window(loaded).open()
    one.sees("What changed")
    one.until(lambda: one.page.locator(".events li").count() > 0, "there are events")
    one.rounds(2)
    painted = "canvas => { const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }"
    chart = one.page.locator("canvas.overlay").first
    before = chart.evaluate(painted)
    policy = {"name": "marked", "unit": "requests", "rate": 1e6, "mode": "shadow"}
    answer = loaded.client().put("/admin/v1/quotas/marked", json.dumps(policy), Umbo_Reason="for the mark")
    assert answer.status in (200, 201), answer
    one.at_once(lambda: "marked" in one.page.locator(".events").first.inner_text(), "the event is listed")
    one.at_once(lambda: chart.evaluate(painted) > before + 20, "the mark is drawn")
    one.check()


def test_a_server_that_is_away_is_said_and_tried_again(new_server, window):
    server = new_server({"server": {"drain_delay": "0s"}}).start()
    server.namespace("kept-name")
    one = window(server).open("storage")
    one.sees("kept-name")
    ports = [f"127.0.0.1:{port}" for port in (server.port, server.admin_port)]
    server.stop()
    one.sees("trying again")
    assert "kept-name" in one.text(), "the last numbers stay"
    server.arguments = ["--listen", ports[0], "--admin-listen", ports[1]]
    server.start()
    one.sees("Live")
    one.complaints.clear()
    one.rounds(3)
    one.check()


def test_nothing_is_asked_while_the_page_is_hidden(loaded, window):
    one = window(loaded).open("hot")
    one.sees("Live")
    one.page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true }); document.dispatchEvent(new Event('visibilitychange'));")
    asked = len(one.requests)
    one.page.clock.run_for(10_000)
    assert len(one.requests) == asked
    one.page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'));")
    one.until(lambda: len(one.requests) > asked, "it is asked again")
    one.check()


def test_a_node_that_is_lost_is_said(folder, window):
    cluster = Cluster(folder).start()
    try:
        one = window(cluster.dispatchers[0]).open("storage")
        nodes = one.page.get_by_role("table", name="Nodes")
        for name in cluster.nodes:
            row = nodes.locator("tbody tr", has=one.page.get_by_role("cell", name=name, exact=True))
            one.until(lambda row=row: row.count() == 1 and "up" in row.inner_text(), f"{name} is up")
        cluster.nodes[name].kill()
        one.until(lambda: "away" in row.inner_text(), f"{name} is away")
        one.sees("unavailable")
        one.open("events")
        one.sees("node-lost")
        one.check()
    finally:
        cluster.discard()
