"""Loads on the page: progress and rate of one that is paced, what it waits for, and those that have ended."""

import json
import re

import pytest

from bulk_loads import Load, lines, load_rows
from harness import Server, memory_folder
from staged import SCREENSHOTS, Stage

pytestmark = pytest.mark.real("chromium")
# Progress is told by batches of 4,096 rows.
ROWS = 60_000


def rows(count):
    return [{"pk": f"p{n:05}", "v": "x"} for n in range(count)]


def test_loads_are_seen_with_progress_rate_reason_and_end(window):
    with memory_folder() as path, Server(path) as server:
        server.start()
        client = server.namespace("cities").client
        server.namespace("listings")
        load_rows(client, "cities", rows(7))
        failed = Load.create(client, "cities")
        assert failed.put(0, lines(rows(2)) + b"nothing\n").status == 201
        failed.seal(1)
        failed.wait_for("failed")
        load = Load.create(client, "listings")
        assert load.put(0, lines(rows(ROWS))).status == 201
        slow = {"name": "slow", "match": {"operations": ["batch-write"]}, "per": ["caller"], "unit": "writes"}
        made = client.put("/admin/v1/quotas/slow", json.dumps(slow | {"rate": 2_000, "burst": 2_000}))
        assert made.status == 201, made
        server.stage = Stage(server)
        load.seal(1)

        one = window(server).open("loads")
        one.until(lambda: one.row("building").count() == 1, "the load is under way")
        going = one.row("building")
        one.until(lambda: "slow" in going.inner_text(), "the reason is shown")
        one.until(lambda: re.search(r"[1-9][\d,]* of 60,000", going.inner_text()), "rows of how many are shown")
        cell = lambda label: going.locator(f"[data-label='{label}']").inner_text()
        one.until(lambda: re.fullmatch(r"[123](\.\d+)?k", cell("Rows/s")), "the rate is shown")
        assert re.search(r"\d+\u2009(s|min)", cell("Left")), cell("Left")
        assert "cities" in one.row("live").inner_text() and "7 of 7" in one.row("live").inner_text()
        over = one.row("failed").inner_text()
        assert "cities" in over and "max_reject_ratio" in over, over
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        one.page.screenshot(path=SCREENSHOTS / "loads-under-way-1440-light.png")

        assert load.post("abort").status == 200
        one.until(lambda: one.row("aborted").count() == 1 and one.row("building").count() == 0, "it has ended")
        one.sees("No load is under way")
        # The tenth view has the last key of the row of digits.
        one.page.keyboard.press("8")
        one.sees("History")
        one.page.keyboard.press("0")
        one.sees("Explain")
        one.check()
