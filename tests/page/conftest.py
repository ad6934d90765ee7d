"""Fixtures of the tests of the operators' page: Debian's Chromium, headless, and a server with load."""

import contextlib
import json
import os
import shutil

import pytest
from playwright.sync_api import sync_playwright

from bulk_loads import load_rows
from harness import WAIT_SECONDS, Namespace, Server, memory_folder, wait_until
from own_network import own_network
from staged import BINARY, CALLERS, HOT, LONG, MARKUP, SETTINGS, Stage

@pytest.fixture(scope="module", autouse=True)
def network():
    """A network of each file: a browser drops its requests whenever another test makes a device
    (ERR_NETWORK_CHANGED)."""
    with own_network() if os.geteuid() == 0 else contextlib.nullcontext():
        yield


@pytest.fixture(scope="module")
def chromium(network):
    path = shutil.which("chromium")
    assert path, "chromium is not installed; tests/run installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Window:
    """A page of the browser, with everything that it complained of and asked for. Its time passes while a test waits for
    something, and only then, as that of the server does: nothing that is shown for a while is missed."""

    def __init__(self, chromium, server, **more):
        self.base = f"http://127.0.0.1:{server.admin_port}/"
        self.complaints, self.requests = [], []
        self.context = chromium.new_context(viewport={"width": 1440, "height": 900}, **more)
        self.context.set_default_timeout(WAIT_SECONDS * 1_000)
        self.page = self.context.new_page()
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.second = getattr(server, "second", lambda: server.clock.advance(1))
        now = server.clock.time()
        # Its clock runs until it is stopped, at a time that may not have passed by then.
        self.page.clock.install(time=now - 3_600)
        self.page.clock.pause_at(now)

    def hear(self, line):
        # The tests themselves read what is painted.
        if line.type in ("error", "warning") and "getImageData" not in line.text:
            self.complaints.append(line.text)

    def open(self, view="overview"):
        self.page.goto(f"{self.base}#/{view}")
        return self

    def step(self):
        """Lets a second pass for the server and for the page, and the browser's events arrive."""
        self.second()
        self.page.clock.run_for(1_000)
        self.page.wait_for_timeout(20)

    def steps(self, count):
        for _ in range(count):
            self.step()

    def until(self, is_so, what, step=None):
        """As wait_until, but time passes meanwhile."""
        try:
            return wait_until(lambda: is_so() or (step or self.step)(), what)
        except AssertionError as error:
            raise AssertionError(f"{error}; console: {self.complaints[:5]}; {self.text()[:2000]}") from None

    def at_once(self, is_so, what):
        """As wait_until: the browser's events arrive, and no time passes."""
        self.until(is_so, what, lambda: self.page.wait_for_timeout(20))

    def rounds(self, count):
        """Lets the page read the API so many times more."""
        for _ in range(count):
            with self.page.expect_response(lambda answer: "/admin/v1/" in answer.url and "/events" not in answer.url):
                self.step()

    def frames(self):
        """Waits until what has changed is painted."""
        self.page.clock.run_for(100)

    def text(self):
        return self.page.locator("body").inner_text()

    def sees(self, text):
        self.until(lambda: text in self.text(), f"'{text}' is shown")

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


class Caller:
    """One caller of many requests: a hot key, writes, ranges, and rejections."""

    def __init__(self, server, name):
        self.ns, self.name, self.number = Namespace(server.client(), "listings"), name, 0

    def work(self):
        """Requests of a second."""
        who = {"Umbo_Quota_User": self.name}
        for self.number in range(self.number + 1, self.number + 13):
            listing = f"listing-{self.number % 20}"
            self.ns.get(HOT if self.name in CALLERS[:2] else listing, **who)
            if self.number % 5 == 0:
                self.ns.put(f"{self.name}-{self.number % 50}", value=b"y" * 200, **who)
            if self.number % 7 == 0:
                self.ns.range(listing, headers={"Umbo-Quota-User": self.name})
            if self.number % 3 == 0:
                self.ns.get(MARKUP, Umbo_Criticality="critical", **who)
                self.ns.get(BINARY, **who)
                self.ns.get(LONG, **who)


@pytest.fixture(scope="module")
def loaded():
    """A server with load, for the tests of one file: a second of it whenever a test waits for something."""
    with memory_folder() as path, Server(path, SETTINGS) as server:
        nightly = server.start().namespace("nightly")
        load_rows(nightly.client, "nightly", [{"pk": f"p{n}", "v": "x"} for n in range(50)])
        stage = Stage(server)
        ns = server.namespace("listings")
        for key in [HOT, MARKUP, BINARY, LONG, *(f"listing-{n}" for n in range(20))]:
            assert ns.put(key, value=b"x" * 100).status in (201, 204)
        policy = {"name": "crawl", "match": {"caller": "crawler"}, "per": ["caller"], "unit": "requests", "rate": 5}
        assert ns.client.put("/admin/v1/quotas/crawl", json.dumps(policy)).status == 201
        stage.work = [Caller(server, name).work for name in CALLERS]

        def is_hot():
            stage.second()
            return any(key.get("pk") == HOT for key in ns.client.get("/admin/v1/hot").json()["keys"])

        wait_until(is_hot, "a key is hot")
        # Charts show a past.
        for _ in range(8):
            stage.second()
        yield server
