"""Each view of the page in Chromium, with data from a running load, at both widths and in both themes."""

import pytest

from harness import read_answer
from staged import BINARY, CALLERS, HOT, LONG, MARKUP, SCREENSHOTS, Stage

pytestmark = pytest.mark.real("chromium")

# A view, the texts that only data can bring, and the charts that must have some.
VIEWS = {
    "overview": (["Served", "Latest", "RU/s"], ["Requests by outcome", "Latency", "Request units"]),
    "callers": (CALLERS, ["Busiest callers"]),
    "callers/crawler": (["crawl", "get", "Policies with what is left"], ["Request units", "Requests"]),
    "heat": (["RU/s", "Choose a row"], []),
    "hot": ([HOT, "listings", "Block"], ["Reads that the store did not see"]),
    "quotas": (["crawl", "default-caller", "enforce"], ["Rejected by policy"]),
    "quotas/crawl": (["5 requests a second", "caller=crawler", "stored"], ["How much of it is used", "Requests that it refused"]),
    "overload": (["Shards now", "calm", "Thread lag"], ["Pressure", "Queue length"]),
    "storage": (["listings", "available", "this process"], ["Load by shard", "Rows", "Time of a sync", "Row cache hit rate"]),
    "loads": (["nightly", "live", "50 of 50"], []),
    "events": (["started"], []),
    "why": (["Request id", "Explain"], []),
}


def chart_texts(window):
    """What each chart says of itself."""
    return [chart.get_attribute("aria-label") for chart in window.page.locator("canvas.overlay").all()]


def has_data(window, title):
    texts = [text for text in chart_texts(window) if text.startswith(f"{title}:")]
    return texts and not any("no data" in text or "–" in text for text in texts)


def inked(canvas):
    """How many pixels of a canvas are painted."""
    return canvas.evaluate(
        "canvas => { const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        " let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }"
    )


def cut_off(window):
    """The texts of cells that lie beyond the right edge of the window."""
    return window.page.evaluate(
        "[...document.querySelectorAll('main td, main td *')].filter((one) => {"
        " const box = one.getBoundingClientRect(); return box.width && box.right > innerWidth; }).map((one) => one.textContent)"
    )


def whole(window, width):
    """Makes the window as tall as what it shows."""
    height = window.page.evaluate("Math.max(document.querySelector('main').scrollHeight + 120, document.body.scrollHeight)")
    window.page.set_viewport_size({"width": width, "height": max(700, min(height, 4000))})
    window.frames()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_what_happens(loaded, window, view):
    texts, charts = VIEWS[view]
    one = window(loaded).open(view)
    for text in texts:
        if text != "Latest":
            one.sees(text)
    for title in charts:
        one.until(lambda title=title: has_data(one, title), f"the chart '{title}' has data")
    for canvas in one.page.locator(".plot canvas:not(.overlay)").all():
        one.until(lambda canvas=canvas: not canvas.is_visible() or inked(canvas) > 100, "a canvas is painted")
    assert one.page.locator("nav a[aria-current]").get_attribute("data-view") == view.split("/")[0]
    one.sees("Live")
    # It goes on: three rounds of reads, without a complaint. Loads are read every other second.
    if view.split("/")[0] not in ("events", "loads", "why"):
        one.rounds(3)
    assert one.page.locator(".problem").count() == 0, one.text()
    one.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_screenshots(loaded, window, width, scheme):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    one = window(loaded, color_scheme=scheme)
    for view, (texts, charts) in VIEWS.items():
        one.page.set_viewport_size({"width": width, "height": 900})
        one.open(view)
        one.sees(texts[0])
        for title in charts:
            one.until(lambda title=title: has_data(one, title), f"the chart '{title}' has data")
        if view == "heat":
            one.until(lambda: one.page.locator(".plot.heat canvas").bounding_box()["height"] > 100, "the map is drawn")
            one.page.locator(".plot.heat canvas").click(position={"x": one.page.locator(".plot.heat canvas").bounding_box()["width"] - 30, "y": 12})
            one.sees("Behind")
        # Nothing is wider than the screen.
        overflow = one.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0 and cut_off(one) == [], (view, width, overflow, cut_off(one))
        whole(one, width)
        one.page.screenshot(path=SCREENSHOTS / f"{view.replace('/', '-')}-{width}-{scheme}.png")
    one.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_screenshots_of_an_empty_server(new_server, window, width, scheme):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    server = new_server().start()
    Stage(server)
    one = window(server, color_scheme=scheme)
    for view in [view for view in VIEWS if "/" not in view]:
        one.page.set_viewport_size({"width": width, "height": 900})
        one.open(view)
        one.sees("Live")
        one.until(lambda: "Reading…" not in one.text(), "what is asked for is answered")
        overflow = one.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, (view, width, overflow)
        whole(one, width)
        one.page.screenshot(path=SCREENSHOTS / f"empty-{view}-{width}-{scheme}.png")
    one.check()


def test_keys_and_names_are_shown_as_text(loaded, window):
    """Markup, bytes that are no text, and 1 KiB: shown, never interpreted."""
    one = window(loaded).open("hot")
    client = loaded.client()
    for path in ("%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "%00%FF%01%FE", LONG):
        answer = client.put(f"/admin/v1/hot/pinned/ns/listings/kv/{path}", b'{"reason": "<b>bold</b>"}')
        assert answer.status in (200, 201), answer
    one.sees(MARKUP)
    one.sees("\\x00\\xff\\x01\\xfe")
    one.sees("<b>bold</b>")
    assert BINARY == b"\x00\xff\x01\xfe"
    one.sees("kkkk…kkkk".replace("kkkk", "k" * 20))
    assert one.page.locator("main img").count() == 0 and one.page.locator("main b").count() == 0
    one.open(f"callers/{MARKUP}".replace("<", "%3C").replace(">", "%3E").replace(" ", "%20"))
    one.sees(MARKUP)
    assert one.page.locator("main img").count() == 0 and one.page.locator("header img").count() == 0
    one.check()


def test_ten_thousand_callers(new_server, window):
    """All are counted and found by the filter; the table shows the highest."""
    server = new_server().start()
    ns = server.namespace("many")
    with server.raw(b"") as sock, sock.makefile("rb") as reader:
        for first in range(0, 10_000, 100):
            heads = (f"HEAD {ns.path('a')} HTTP/1.1\r\nHost: a\r\nUmbo-Quota-User: caller-{n:05}\r\n\r\n" for n in range(first, first + 100))
            sock.sendall("".join(heads).encode())
            assert {read_answer(reader, is_head=True).status for _ in range(100)} == {404}
    assert server.admin().get("/admin/v1/callers?limit=10000").json()["total"] > 5_000
    one = window(server).open("callers")
    one.sees("caller-")
    one.until(lambda: one.page.locator("tbody tr").count() == 200, "200 rows are shown")
    seen = one.row("caller-").first.locator("td").first.inner_text()
    one.page.get_by_label("Filter callers").fill(seen)
    one.until(lambda: one.page.locator("tbody tr").count() == 1, "one is left")
    one.check()


def test_the_keyboard_is_enough(loaded, window):
    one = window(loaded).open()
    one.sees("Served")
    one.page.keyboard.press("2")
    one.sees("All callers")
    one.page.keyboard.press("1")
    one.until(lambda: has_data(one, "Requests by outcome"), "there is data")
    chart = one.page.locator("canvas.overlay").first
    chart.focus()
    one.page.keyboard.press("ArrowLeft")
    tooltip = one.page.locator(".tooltip")
    one.until(lambda: tooltip.is_visible() and "served" in tooltip.inner_text(), "the tooltip has values")
    first = one.page.locator(".tooltip-time").inner_text()
    one.page.keyboard.press("PageUp")
    one.until(lambda: one.page.locator(".tooltip-time").inner_text() != first, "the cursor moves")
    one.page.keyboard.press("Escape")
    assert not tooltip.is_visible()
    # Each thing that has the focus shows it.
    one.page.evaluate("document.activeElement.blur()")
    for _ in range(12):
        one.page.keyboard.press("Tab")
        outline = one.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", one.page.evaluate("document.activeElement.outerHTML")
    one.check()


def test_one_cursor_moves_through_all_charts(loaded, window):
    one = window(loaded).open()
    one.until(lambda: has_data(one, "Requests by outcome"), "there is data")
    charts = one.page.locator("canvas.overlay")
    before = [inked(chart) for chart in charts.all()]
    box = charts.first.bounding_box()
    one.page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 60)
    one.until(lambda: all(inked(chart) > was for chart, was in zip(charts.all(), before)), "each chart has the cursor")
    one.check()


def test_a_drag_zooms_all_charts_and_escape_shows_all(loaded, window):
    one = window(loaded).open()
    one.until(lambda: has_data(one, "Requests by outcome"), "there is data")
    charts = one.page.locator("canvas.overlay")
    box = charts.first.bounding_box()
    every = one.page.get_by_role("button", name="All", exact=True)
    assert every.count() == 0
    one.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    one.page.mouse.down()
    one.page.mouse.move(box["x"] + box["width"] - 60, box["y"] + 60, steps=4)
    one.page.mouse.up()
    one.at_once(lambda: every.count() == charts.count(), "each chart shows a part of the time")
    # The edges of the plot are its ends: what is at the left was in the middle.
    one.page.mouse.move(box["x"] + 59, box["y"] + 60)
    first = one.page.locator(".tooltip-time").inner_text()
    charts.first.focus()
    one.page.keyboard.press("Escape")
    one.at_once(lambda: every.count() == 0, "all of the time is shown")
    one.page.mouse.move(box["x"] + 60, box["y"] + 60)
    assert one.page.locator(".tooltip-time").inner_text() < first
    charts.first.focus()
    one.page.keyboard.press("+")
    one.at_once(lambda: every.count() == charts.count(), "the keyboard zooms, too")
    every.first.click()
    one.at_once(lambda: every.count() == 0, "all of the time is shown")
    one.check()


def test_an_axis_of_times_may_be_logarithmic(loaded, window):
    one = window(loaded).open()
    one.until(lambda: has_data(one, "Latency"), "there is data")
    base = one.page.locator("figure", has_text="Latency").locator("canvas").first
    picture = lambda: base.evaluate("canvas => canvas.toDataURL()")
    linear = picture()
    button = one.page.get_by_role("button", name="log axis of Latency")
    button.click()
    assert button.get_attribute("aria-pressed") == "true" and picture() != linear
    one.check()


def test_ranges_and_themes(loaded, window):
    one = window(loaded).open()
    for name, text in [("1h", "1 h"), ("24h", "24 h"), ("30d", "30 d"), ("5m", "5 min")]:
        one.page.get_by_role("button", name=text, exact=True).click()
        one.until(lambda name=name: any(f"history?range={name}" in url for url in one.requests), "the range is read")
    light = one.page.evaluate("getComputedStyle(document.body).backgroundColor")
    one.page.locator("#theme button").click()
    one.page.locator("#theme button").click()
    one.until(lambda: one.page.evaluate("getComputedStyle(document.body).backgroundColor") != light, "it is dark")
    one.check()


def test_figures_change_in_place(loaded, window):
    """A row that stays is the same element after several rounds: nothing is built anew, so nothing flickers."""
    one = window(loaded).open("callers")
    one.sees("search")
    one.page.evaluate("document.querySelectorAll('tbody tr, figure').forEach((element) => { element.kept = true; })")
    one.rounds(4)
    kept = one.page.evaluate("[...document.querySelectorAll('tbody tr, figure')].filter((element) => element.kept).length")
    assert kept >= 4, kept
    one.check()


def test_a_refusal_is_explained_by_its_id_and_by_its_caller(loaded, window):
    client = loaded.client()
    one = window(loaded).open("why")
    # Its quota is spent, and time stands still.
    answers = [client.get("/v1/ns/listings/kv/listing-1", Umbo_Quota_User="crawler") for _ in range(20)]
    request_id = answers[-1].problem(429, "quota-exceeded")["request_id"]
    one.page.get_by_label("Request id").fill(request_id)
    one.page.get_by_role("button", name="Explain").click()
    for text in ("What happened", "rejected", "crawl", "quota-exceeded", "Policies that were asked"):
        one.sees(text)
    assert request_id in one.page.url
    one.page.get_by_label("Or all refusals").fill("crawler")
    one.page.get_by_role("button", name="Group").click()
    one.sees("Refusals of crawler")
    one.until(lambda: one.row("quota-exceeded").count() == 1, "the reason is listed")
    one.row("quota-exceeded").get_by_role("link").first.click()
    one.sees("What happened")
    one.check()


def test_an_unknown_request_is_answered_in_words(loaded, window):
    one = window(loaded).open("why/nothing-known")
    one.sees("nothing-known")
    assert one.page.locator(".problem").count() >= 1
