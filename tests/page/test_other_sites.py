"""What a real browser lets pages of other sites do to a server without a token, and what it runs of stored values."""

import shutil

import pytest

SEND = """async ([url, body]) => {
    const sent = await fetch(url, { method: "POST", mode: "no-cors", body }).catch((error) => error);
    return String(sent.type);
}"""


# The name of another site leads here (DNS rebinding), and the browser does not ask its user about loopback.
FLAGS = ["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1",
         "--disable-features=LocalNetworkAccessChecks"]  # fmt: skip


@pytest.fixture
def page(chromium):
    browser = chromium.browser_type.launch(executable_path=shutil.which("chromium"), args=FLAGS)
    yield browser.new_page()
    browser.close()


def test_a_page_of_another_site_writes_nothing(page, server, ns):
    page.goto("data:text/html,<title>another site</title>")
    for port in (server.port, server.admin_port):
        for path, body in [
            ("/admin/v1/tokens", '{"name":"evil","grants":["*:*"]}'),
            (f"{ns.base}/batch/write", '{"op":"put","pk":"evil","v":"1"}'),
        ]:
            # It arrives, and the page does not learn what came of it.
            assert page.evaluate(SEND, [f"http://127.0.0.1:{port}{path}", body]) == "opaque"
    assert server.client().get("/admin/v1/tokens").json()["tokens"] == []
    assert ns.get("evil").status == 404
    assert server.metric("umbo_refused_total") >= 4


def test_a_stored_page_runs_nothing_and_has_no_origin(page, server, ns):
    ns.put("page", value=b"<title>still</title><script>document.title = 'ran'</script>", content_type="text/html")
    page.goto(f"http://127.0.0.1:{server.port}{ns.path('page')}")
    assert page.title() == "still"
    # A script that is no script by its media type is not run by a page of another site either.
    ns.put("script", value=b"document.title = 'ran'", content_type="text/plain")
    page.goto("data:text/html,<title>still</title>")
    url = f"http://127.0.0.1:{server.port}{ns.path('script')}"
    page.evaluate("""(url) => new Promise((done) => {
        const script = document.createElement("script");
        script.onload = script.onerror = done;
        script.src = url;
        document.head.append(script);
    })""", url)  # fmt: skip
    assert page.title() == "still"


def test_a_name_that_was_pointed_here_shows_nothing(page, server):
    for port in (server.port, server.admin_port):
        for path in ("/page", "/admin/v1/config", "/healthz"):
            answer = page.goto(f"http://evil.example:{port}{path}")
            assert answer.status == 403 and "foreign-host" in answer.text()
