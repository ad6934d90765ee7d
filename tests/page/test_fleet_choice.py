"""The page of one dispatcher shows all of them, or any one."""

import contextlib
import http.client

import pytest

from staged import SCREENSHOTS
from harness import Cluster, Namespace, memory_folder, wait_until

pytestmark = pytest.mark.real("chromium")


@pytest.fixture(scope="module")
def busy():
    """Two dispatchers with different callers each, who ask whenever a test waits for something."""
    with memory_folder() as folder:
        cluster = Cluster(folder, 2)
        try:
            cluster.start()
            first, second = cluster.dispatchers
            ns = first.namespace("shared")
            assert ns.put("a", value=b"1").status == 201
            other = Namespace(second.client(), "shared")
            wait_until(lambda: other.get("a").status == 200, "the namespace is seen")
            wait_until(lambda: len(first.admin().get("/admin/v1/fleet").json()["processes"]) == 2, "both are known")

            asked = [(ns, "of-the-first"), (other, "of-the-second")]

            def pass_second():
                for namespace, caller in asked:
                    # The last test kills one of them.
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        for _ in range(20):
                            namespace.get("a", Umbo_Quota_User=caller)
                cluster.tier.clock.advance(1)

            first.second = second.second = pass_second
            yield cluster
        finally:
            cluster.discard()


def choice(window):
    return window.page.get_by_label("Server")


def callers(window):
    return [text.split()[0] for text in window.page.locator("tbody tr").all_inner_texts() if text.strip()]


def test_all_are_shown_together_and_each_by_itself(busy, window):
    first, second = busy.dispatchers
    one = window(first).open("callers")
    one.until(lambda: choice(one).count() == 1, "servers can be chosen")
    options = choice(one).locator("option").all_inner_texts()
    assert options[0] == "All 2 servers" and len(options) == 3 and "(this)" in options[1], options
    one.until(lambda: {"of-the-first", "of-the-second"} <= set(callers(one)), "callers of both")
    one.page.screenshot(path=str(SCREENSHOTS / "fleet-1440-light.png"))
    # By keyboard.
    choice(one).focus()
    one.page.keyboard.press("End")
    one.until(lambda: "of-the-second" in callers(one) and "of-the-first" not in callers(one), "only the other's")
    one.page.keyboard.press("Home")
    one.page.keyboard.press("ArrowDown")
    one.until(lambda: "of-the-first" in callers(one) and "of-the-second" not in callers(one), "only its own")
    one.check()
    other = window(second).open("callers")
    other.until(lambda: {"of-the-first", "of-the-second"} <= set(callers(other)), "callers of both")
    other.check()


def test_hot_keys_are_added_up_by_who_pays(busy, window):
    first, second = busy.dispatchers
    assert first.client().put("/admin/v1/hot/pinned/ns/shared/kv/a").status in (200, 201)
    one = window(first).open("hot")
    one.until(lambda: choice(one).count() == 1, "servers can be chosen")
    both = lambda: "of-the-first" in one.row("shared").inner_text() and "of-the-second" in one.row("shared").inner_text()
    one.until(lambda: one.row("shared").count() == 1 and both(), "one key, with the callers of both")
    choice(one).focus()
    one.page.keyboard.press("End")
    one.until(lambda: "of-the-first" not in one.row("shared").inner_text(), "only the other's")
    one.check()


def test_events_and_queues_of_both_are_shown(busy, window):
    first, second = busy.dispatchers
    one = window(first).open("events")
    names = [f"/{dispatcher.process.pid}" for dispatcher in busy.dispatchers]
    started = lambda: [text for text in one.page.locator("tbody tr").all_inner_texts() if "started" in text]
    # Its own have no name; a change is listed once.
    one.until(lambda: len(started()) == 2 and sum(names[1] in text for text in started()) == 1, "both have started")
    created = [text for text in one.page.locator("tbody tr").all_inner_texts() if "namespace-created" in text]
    assert len(created) == 1, created
    limit = lambda server: sum(one["queue"]["limit"] for one in server.admin().get("/admin/v1/shed").json()["shards"])
    one.open("overload")
    cells = lambda: [text for text in one.page.locator("tbody td").all_inner_texts() if " of " in text]
    shown = lambda: sum(int(text.split(" of ")[1]) for text in cells())
    near = lambda: abs(shown() - limit(first) - limit(second)) <= 0.2 * limit(first) and cells()
    one.until(near, "limits of both are added up")
    one.check()


def test_a_request_of_another_is_explained(busy, window):
    first, second = busy.dispatchers
    refused = second.client().get("/v1/ns/shared/range/a?limit=none").json()["request_id"]
    one = window(first).open("overview")
    one.until(lambda: choice(one).count() == 1, "servers can be chosen")
    one.open(f"why/{refused}")
    one.sees("invalid-query")
    one.check()


def test_one_that_is_away_is_shown_as_away(busy, window):
    first, second = busy.dispatchers
    one = window(first, color_scheme="dark").open("overload")
    one.until(lambda: choice(one).count() == 1, "servers can be chosen")
    choice(one).focus()
    one.page.keyboard.press("End")
    shards = lambda: one.page.locator("tbody tr").count()
    one.until(lambda: shards() > 0, "its shards are shown")
    second.kill()
    one.until(lambda: any("(away)" in text for text in choice(one).locator("option").all_inner_texts()), "it is away")
    # Its last numbers stay.
    assert shards() > 0
    one.page.screenshot(path=str(SCREENSHOTS / "fleet-away-1440-dark.png"))
    one.check()
