"""The banner with what is wrong: the sentence, since when, and where it leads, on every view."""

import pytest

from staged import SCREENSHOTS, Stage
from test_views import VIEWS, cut_off

pytestmark = pytest.mark.real("chromium")


def finding(sentence, severity="problem", view="storage", **more):
    return {"rule": "shard-unavailable", "subject": sentence, "severity": severity, "since_ms": 0, "sentence": sentence,
            "advice": "start node b", "view": view} | more  # fmt: skip


@pytest.fixture
def told(new_server, window):
    """A window whose server finds what a list has."""
    findings = []
    server = new_server().start()
    Stage(server)
    one = window(server)
    answer = lambda: {"checked_ms": int(server.clock.time() * 1_000), "findings": findings}
    one.page.route("**/admin/v1/diagnosis", lambda route: route.fulfill(json=answer()))
    return one, findings


def banner(window):
    return window.page.get_by_role("region", name="What is wrong")


def test_every_view_says_what_is_wrong_and_leads_there(told):
    one, findings = told
    one.open()
    one.sees("Nothing is wrong, as of")
    assert banner(one).inner_text() == ""
    findings.append(finding("shards 2, 3 are unavailable: node b: connection refused"))
    one.until(lambda: "node b: connection refused" in banner(one).inner_text(), "it is said")
    one.until(lambda: "Nothing is wrong" not in one.text(), "something is wrong")
    for view in [view for view in VIEWS if "/" not in view]:
        one.open(view)
        current = lambda: one.page.locator("nav a[aria-current]").get_attribute("data-view")
        one.at_once(lambda view=view: current() == view.split("/")[0], "the view is shown")
        for text in ("problem", "since", "start node b", "node b: connection refused"):
            assert text in banner(one).inner_text(), view
    # By keyboard.
    banner(one).get_by_role("link").focus()
    one.page.keyboard.press("Enter")
    one.at_once(lambda: current() == "storage", "the view is shown")
    assert one.page.url.endswith("#/storage")
    findings.clear()
    one.until(lambda: banner(one).inner_text() == "", "it is over")
    one.check()


def test_many_findings_leave_room_and_markup_is_text(told):
    one, findings = told
    findings += [finding(f"<b>one</b> {number} " + "x" * 80, severity) for number, severity in enumerate(["problem", "warning", "notice", "notice"])]
    for width, shown in ((1440, 3), (390, 1)):
        one.page.set_viewport_size({"width": width, "height": 900})
        one.open("storage")
        one.page.reload()
        one.until(lambda: banner(one).get_by_role("link").count() == shown, "the first are shown")
        assert banner(one).locator("b b").count() == 0
        overflow = one.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0 and cut_off(one) == []
        one.page.screenshot(path=SCREENSHOTS / f"banner-{width}-light.png")
        one.page.get_by_role("button", name=f"{4 - shown} more").click()
        one.at_once(lambda: banner(one).get_by_role("link").count() == 4, "all are shown")
    one.check()
