"""What the ports answer to browsers: the page and its files, and to others what they always did."""

import re

import pytest

HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def directives(answer):
    policy = answer.headers["content-security-policy"]
    return dict(part.strip().split(" ", 1) for part in policy.split(";"))


def files_of(client):
    """Paths of all files of the page, found from the document on."""
    found, open_ = set(), [("/page", client.get("/page").body.decode())]
    while open_:
        path, text = open_.pop()
        names = re.findall(r'(?:src|href)="(page/[^"]+)"', text)
        names += [f"{path.rsplit('/', 1)[0]}/{name}".lstrip("/") for name in re.findall(r'from "(\.[^"]+)"', text)]
        for name in names:
            parts = []
            for part in name.split("/"):
                if part == "..":
                    parts.pop()
                elif part != ".":
                    parts.append(part)
            name = "/" + "/".join(parts)
            if name not in found:
                found.add(name)
                answer = client.get(name)
                assert answer.status == 200, (path, name, answer)
                open_.append((name, answer.body.decode()))
    return found


def test_browsers_get_the_page_and_others_what_this_is(server):
    for client in (server.client(), server.admin()):
        page = client.request("GET", "/", headers=HTML)
        assert page.status == 200 and page.headers["content-type"].startswith("text/html"), page
        assert b"<!doctype html>" in page.body and "accept" in page.headers["vary"]
        for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
            info = client.request("GET", "/", headers=headers)
            assert info.json()["name"] == "umbo" and info.json()["page"] == "/page", info
        assert client.get(info.json()["page"]).body == page.body


def test_the_log_says_where_the_page_is(server):
    assert any(f'"page":"http://127.0.0.1:{server.admin_port}/"' in line for line in server.log)


def test_every_file_keeps_to_itself(server):
    client = server.admin()
    files = files_of(client)
    assert {"/page/app.css", "/page/app.js", "/page/chart.js", "/page/views/why.js"} <= files
    size = 0
    for path in {"/page", *files}:
        answer = client.get(path)
        allowed = directives(answer)
        assert allowed["default-src"] == allowed["form-action"] == allowed["frame-ancestors"] == allowed["base-uri"] == "'none'"
        assert allowed["script-src"] == allowed["style-src"] == allowed["connect-src"] == "'self'", answer
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["referrer-policy"] == "no-referrer"
        size += len(answer.body)
    assert size <= 300_000, size


def test_a_file_is_sent_once_and_compressed(server):
    client = server.admin()
    answer = client.get("/page/app.css")
    again = client.get("/page/app.css", If_None_Match=answer.headers["etag"])
    assert again.status == 304 and again.body == b""
    small = client.get("/page/app.css", Accept_Encoding="gzip")
    assert small.headers["content-encoding"] == "gzip" and len(small.body) < len(answer.body) / 2


@pytest.mark.parametrize("path", ["/page/nothing.js", "/page/../Cargo.toml", "/page/%2e%2e/x", "/page/", "/page/views"])
def test_nothing_else_is_below_the_page(server, path):
    assert server.admin().get(path).status == 404
