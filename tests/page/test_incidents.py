"""Three incidents as an operator meets them, and the walk through the page that finds cause and remedy.

The same walks are told in config/README.md. What happens is staged; what the page says of it is read from it.
"""

import contextlib
import itertools
import json

import pytest

from harness import Client, Namespace, Server, memory_folder, wait_until
from staged import SCREENSHOTS, Stage

pytestmark = pytest.mark.real("chromium")

SETTINGS = {"hotkey": {"rate_min": 20, "ttl": "10s"}}
# How often a caller does its work in a second.
TIMES = 20


@contextlib.contextmanager
def callers(incident, **work):
    """Lets each caller do its work again and again, with its own token, for as long as the block lasts."""
    server, _, tokens = incident
    added = []

    def repeat(name, ask):
        ns, numbers = Namespace(Client(server.port, token=tokens[name]), "listings"), itertools.count(1)
        return lambda: [ask(ns, next(numbers)) for _ in range(TIMES)]

    for name, ask in work.items():
        added.append(repeat(name.replace("_", "-"), ask))
    server.stage.work += added
    try:
        yield
    finally:
        server.stage.work = [one for one in server.stage.work if one not in added]


def search(ns, number):
    ns.get(f"listing-{number % 40}")


def mail(ns, number):
    ns.get(f"listing-{number * 7 % 40}")
    if number % 4 == 0:
        ns.put(f"sent-{number % 30}", value=b"x" * 100)


@pytest.fixture
def incident(window):
    """A server with rows and two operators, and a window of one of them."""
    with memory_folder() as path, Server(path, SETTINGS) as server:
        server.start()
        client = server.client()

        def token(name):
            answer = client.post("/admin/v1/tokens", {"name": name, "grants": ["*:*"]})
            assert answer.status == 201, answer
            client.token = client.token or answer.json()["token"]
            return answer.json()["token"]

        names = ("alice", "eve", "search", "mail", "crawler", "nightly-job")
        tokens = {name: token(name) for name in names}
        ns = server.namespace("listings", token=tokens["alice"])
        for n in range(40):
            assert ns.put(f"listing-{n}", value=b"x" * 100).status == 201
        server.stage = Stage(server, tokens["alice"])
        one = window(server)
        one.open()
        one.until(lambda: one.page.locator("dialog").is_visible(), "a token is asked for")
        one.page.locator("dialog input").fill(tokens["alice"])
        one.page.get_by_role("button", name="Use it").click()
        one.sees("Live")
        yield server, one, tokens
        # Before there was a token, the browser was told so.
        one.complaints[:] = [text for text in one.complaints if "401" not in text]
        one.check()


def picture(one, name, height=900):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    # No tooltip lies over it.
    one.page.mouse.move(10, 880)
    one.frames()
    clip = {"x": 0, "y": 0, "width": 1440, "height": height}
    one.page.screenshot(path=SCREENSHOTS / f"incident-{name}.png", clip=clip)


def test_a_crawler_hammers_one_key(incident):
    """Symptom: request units have tripled, for no known reason."""
    server, one, tokens = incident

    def crawler(ns, _):
        for _ in range(5):
            ns.get("listing-7")

    with callers(incident, search=search, mail=mail):
        one.steps(5)
        with callers(incident, crawler=crawler):
            one.open("hot")
            row = one.row("listing-7")
            one.until(lambda: row.count() == 1 and "crawler" in row.inner_text(), "the key and its callers are named")
            assert "%" in row.inner_text()
            one.steps(8)
            picture(one, "crawler-hot", 660)
            row.get_by_role("link").first.click()
            one.sees("Caller crawler")
            one.sees("Hottest keys")
            one.until(lambda: one.row("listing-7").count() == 1, "its hottest key is named")
            picture(one, "crawler-caller")
            one.open("hot")
            one.row("listing-7").get_by_role("button", name="Block").click()
            one.page.locator("dialog").get_by_label("Reason").fill("crawler without end")
            one.page.locator("dialog").get_by_role("button", name="Block").click()
            client = server.client(token=tokens["search"])
            wait_until(lambda: client.get("/v1/ns/listings/kv/listing-7").status == 429, "reads of it are refused")
            assert client.get("/v1/ns/listings/kv/listing-8").status == 200


def test_a_nightly_job_slows_one_shard(incident):
    """Symptom: some reads are slow, always of the same listings."""
    server, one, tokens = incident

    def nightly_job(ns, number):
        rows = [{"pk": "report", "sk": f"{number}-{n}", "v": "x" * 1_000} for n in range(100)]
        ns.write(rows)

    with callers(incident, search=search, mail=mail):
        one.steps(4)
        with callers(incident, nightly_job=nightly_job):
            one.open("heat")
            asked = server.client(token=tokens["alice"]).post("/v1/ns/listings/explain", {"operation": "get", "pk": "report"})
            shard = asked.json()["shards"][0]["shard"]

            def brightest():
                rows = server.admin(token=tokens["alice"]).get("/admin/v1/heat?range=5m").json()["rows"]
                last = {row["shard"]: sum(value or 0 for value in row["values"][-5:]) for row in rows}
                return last and max(last, key=last.get) == shard

            one.until(brightest, "one row of the map is brighter than the others")
            one.steps(15)
            canvas = one.page.locator(".plot.heat canvas")
            one.until(lambda: canvas.bounding_box()["height"] > 60, "the map is drawn")
            box = canvas.bounding_box()
            canvas.click(position={"x": box["width"] - 20, "y": 10 + 26 * shard})
            one.sees(f"Behind shard {shard} now")
            picture(one, "job-heat", 460)
            one.open("callers")
            one.until(lambda: "nightly-job" in one.page.locator("tbody tr").first.inner_text(), "it is the first of all callers")
            picture(one, "job-callers")
            policy = {"name": "nightly", "match": {"caller": "nightly-job"}, "per": ["caller"], "unit": "ru", "rate": 500}
            one.open("quotas/+new")
            one.page.get_by_label("Name", exact=True).fill(policy["name"])
            one.page.get_by_label("Caller", exact=True).fill("nightly-job")
            one.page.get_by_label("Rate", exact=True).fill("500")
            for step in ("1. Simulate", "2. Dry run", "3. Set"):
                button = one.page.get_by_role("button", name=step)
                one.until(lambda button=button: button.is_enabled(), f"'{step}' may be pressed")
                if step == "2. Dry run":
                    picture(one, "job-policy")
                button.click()
            one.sees("is in effect")
            one.open("callers/nightly-job")
            one.until(lambda: one.row("quota-exceeded").count() == 1, "it is rejected now")


def test_a_policy_was_set_too_low_by_another_operator(incident):
    """Symptom: the search team says that it gets 429 since a few minutes."""
    server, one, tokens = incident
    with callers(incident, search=search, mail=mail):
        one.steps(8)
        policy = {"name": "search-limit", "match": {"caller": "search"}, "per": ["caller"], "unit": "requests", "rate": 10}
        eve = server.client(token=tokens["eve"])
        answer = eve.put("/admin/v1/quotas/search-limit", json.dumps(policy), Umbo_Reason="a test, removed tomorrow")
        assert answer.status == 201, answer
        one.open()
        one.sees("policy-changed")
        one.sees("by eve")
        one.sees("a test, removed tomorrow")
        one.steps(8)
        picture(one, "policy-overview")
        one.open("callers/search")
        row = one.row("quota-exceeded")
        one.until(lambda: row.count() == 1 and "search-limit" in row.inner_text(), "the refusals name the policy")
        picture(one, "policy-caller")
        one.open("quotas/search-limit")
        one.sees("10 requests a second")
        one.page.get_by_label("Rate", exact=True).fill("10000")
        one.page.get_by_label("Burst", exact=True).fill("")
        one.page.get_by_label("Reason").fill("search needs more")
        for step in ("1. Simulate", "2. Dry run", "3. Set"):
            button = one.page.get_by_role("button", name=step)
            one.until(lambda button=button: button.is_enabled(), f"'{step}' may be pressed")
            button.click()
        one.sees("is in effect")
        client = server.client(token=tokens["search"])
        wait_until(lambda: client.get("/v1/ns/listings/kv/listing-1").status == 200, "search is served")
