"""Fixtures of the tests of the operators' page: Debian's Chromium, headless, and a server with load."""

import contextlib
import json
import os
import pathlib
import shutil
import threading
import time

import pytest
from playwright.sync_api import sync_playwright

from harness import Client, Namespace, Server, memory_folder, wait_until
from staged import BINARY, CALLERS, HOT, LONG, MARKUP, SETTINGS

@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium")
    assert path, "chromium is not installed; tests/run installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Window:
    """A page of the browser, with everything that it complained of and asked for."""

    def __init__(self, chromium, server, **more):
        self.base = f"http://127.0.0.1:{server.admin_port}/"
        self.complaints, self.requests = [], []
        self.context = chromium.new_context(viewport={"width": 1440, "height": 900}, **more)
        self.page = self.context.new_page()
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def hear(self, line):
        # The tests themselves read what is painted.
        if line.type in ("error", "warning") and "getImageData" not in line.text:
            self.complaints.append(line.text)

    def open(self, view="overview"):
        self.page.goto(f"{self.base}#/{view}")
        return self

    def until(self, is_so, what, seconds=20):
        """As wait_until, but lets the browser's events arrive meanwhile."""
        end = time.monotonic() + seconds
        while True:
            if result := is_so():
                return result
            assert time.monotonic() < end, f"{what}: not within {seconds} s; {self.text()[:2000]}"
            self.page.wait_for_timeout(50)

    def rounds(self, count):
        """Waits until the page has read the API so many times more."""
        for _ in range(count):
            with self.page.expect_response(lambda answer: "/admin/v1/" in answer.url and "/events" not in answer.url):
                pass

    def frames(self):
        """Waits until what has changed is painted."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def text(self):
        return self.page.locator("body").inner_text()

    def sees(self, text, seconds=20):
        self.until(lambda: text in self.text(), f"'{text}' is shown", seconds)

    def row(self, text):
        """The row of a table that has a text."""
        return self.page.locator("tbody tr", has_text=text)

    def check(self):
        """The console has no error, and no request went to another host."""
        assert not self.complaints, self.complaints
        others = [url for url in self.requests if not url.startswith((self.base, "data:"))]
        assert not others, others

    def close(self):
        self.context.close()


@pytest.fixture
def window(chromium, request):
    """Makes windows; each is closed at the end of the test."""
    made = []

    def make(server, **more):
        made.append(Window(chromium, server, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Load:
    """Requests by several callers, as long as the block lasts: a hot key, writes, ranges, and rejections."""

    def __init__(self, server, token=None):
        self.server, self.token, self.stop = server, token, threading.Event()
        self.failures, self.threads = [], []

    def __enter__(self):
        ns = self.server.namespace("listings", token=self.token)
        for key in [HOT, MARKUP, BINARY, LONG, *(f"listing-{n}" for n in range(20))]:
            assert ns.put(key, value=b"x" * 100).status in (201, 204)
        policy = {"name": "crawl", "match": {"caller": "crawler"}, "per": ["caller"], "unit": "requests", "rate": 5}
        answer = ns.client.put("/admin/v1/quotas/crawl", json.dumps(policy))
        assert answer.status in (200, 201), answer
        for at, caller in enumerate(CALLERS):
            self.threads.append(threading.Thread(target=self.work, args=(caller, at)))
        for thread in self.threads:
            thread.start()
        return self

    def work(self, caller, at):
        client = Client(self.server.port, token=self.token)
        ns = Namespace(client, "listings")
        number = 0
        try:
            while not self.stop.is_set():
                number += 1
                who = {"Umbo_Quota_User": caller}
                ns.get(HOT if at < 2 else f"listing-{number % 20}", **who)
                if number % 5 == 0:
                    ns.put(f"{caller}-{number % 50}", value=b"y" * 200, **who)
                if number % 7 == 0:
                    ns.range(f"listing-{number % 20}", headers={"Umbo-Quota-User": caller})
                if number % 3 == 0:
                    ns.get(MARKUP, Umbo_Criticality="critical", **who)
                    ns.get(BINARY, **who)
                    ns.get(LONG, **who)
                self.stop.wait(0.01)
        except Exception as failure:  # shown by the test
            if not self.stop.is_set():
                self.failures.append(failure)
        finally:
            client.close()

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture(scope="module")
def loaded():
    """A server with load, for the tests of one file."""
    with memory_folder() as path, Server(path, SETTINGS) as server:
        server.start()
        with Load(server) as load:
            client = server.client()
            wait_until(lambda: any(key.get("pk") == HOT for key in client.get("/admin/v1/hot").json()["keys"]), "a key is hot")
            yield server
        assert not load.failures, load.failures
        with contextlib.suppress(Exception):
            server.stop()
