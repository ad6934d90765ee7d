"""HTTP/1.1 pipelining and keep-alive, HTTP/2 in the clear and over TLS, client certificates."""

import ssl
import subprocess

import pytest

from harness import Client, client_context, curl, read_answer, receive


def test_keep_alive_and_pipelining(server, ns):
    ns.put("a", value=b"first")
    get = f"GET {ns.path('a')} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    put = f"PUT {ns.path('a')} HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nsecond".encode()
    with server.raw((get + put + get) * 50) as sock:
        reader = sock.makefile("rb")
        bodies = [read_answer(reader).body for _ in range(150)]
        assert bodies == [b"first", b"", b"second"] + [b"second", b"", b"second"] * 49
        sock.sendall(get.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert read_answer(reader).body == b"second" and reader.read() == b""


def test_http_1_0(server, ns):
    ns.put("a", value=b"x")
    with server.raw(f"GET {ns.path('a')} HTTP/1.0\r\n\r\n".encode()) as sock:
        answer = receive(sock)
    assert answer.startswith(b"HTTP/1.0 200") and answer.endswith(b"\r\n\r\nx")


def test_absolute_targets_and_odd_ones(server, ns):
    ns.put("a", value=b"x")
    target = f"http://localhost{ns.path('a')}"
    with server.raw(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()) as sock:
        assert read_answer(sock.makefile("rb")).body == b"x"
    with server.raw(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n") as sock:
        assert read_answer(sock.makefile("rb")).status in (404, 405)
    with server.raw(b"CONNECT localhost:443 HTTP/1.1\r\nHost: a\r\n\r\n") as sock:
        assert read_answer(sock.makefile("rb")).status in (400, 404, 405)
    # The host of a target counts more than the field.
    for line in (f"GET http://example.com{ns.path('a')}", "CONNECT example.com:443"):
        with server.raw(f"{line} HTTP/1.1\r\nHost: a\r\n\r\n".encode()) as sock:
            read_answer(sock.makefile("rb")).problem(403, "foreign-host")


def test_http2_with_prior_knowledge(server, ns):
    url = f"http://127.0.0.1:{server.port}{ns.path('a')}"
    h2 = "--http2-prior-knowledge"
    assert curl(h2, "-T", "-", url, data=b"x" * 500_000).status == 201
    read = curl(h2, url)
    assert read.status == 200 and read.body == b"x" * 500_000
    assert curl(h2, "-o", "/dev/null", "-w", "%{http_version}", url).status == 0
    assert curl(h2, "-I", url).headers["content-length"] == "500000"
    curl(h2, url + "b").problem(404, "key-not-found")
    curl(h2, "-T", "-", url + "/" + "s" * 2049, data=b"x").problem(413, "key-too-large")
    curl(h2, "-X", "POST", url).problem(405, "method-not-allowed")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, a server certificate for loopback, and a client certificate."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    def signed(name, extension):
        (folder / f"{name}.ext").write_text(extension)
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-subj",
                f"/CN={name}", "-out", f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")  # fmt: skip

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-subj",
            "/CN=ca", "-days", "2", "-out", "ca.pem")  # fmt: skip
    signed("server", "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n")
    signed("client", "extendedKeyUsage=clientAuth\n")
    return folder


def tls_server(new_server, certificates, **more):
    pair = {"certificate": str(certificates / "server.pem"), "key": str(certificates / "server.key")}
    return new_server({"tls": pair | more}).start()


def test_tls_with_both_protocols(new_server, certificates):
    server = tls_server(new_server, certificates)
    ca = str(certificates / "ca.pem")
    client = Client(server.port, context=client_context(ca))
    assert client.put("/admin/v1/namespaces/demo").status == 201
    assert client.put("/v1/ns/demo/kv/a", b"x").status == 201
    url = f"https://127.0.0.1:{server.port}/v1/ns/demo/kv/a"
    for option, version in (("--http1.1", b"1.1"), ("--http2", b"2")):
        result = subprocess.run(
            ["curl", "-sS", "--cacert", ca, option, "-w", " %{http_version}", url],
            capture_output=True, timeout=60,
        )  # fmt: skip
        assert result.stdout == b"x " + version, result
    large = b"x" * 500_000
    assert client.put("/v1/ns/demo/kv/a", large).status == 204
    many = ["curl", "-sS", "--cacert", ca, "--http2", "-Z", "--parallel-max", "50", *[url] * 50]
    result = subprocess.run(many, capture_output=True, timeout=60)
    assert result.returncode == 0 and result.stdout == large * 50, "50 streams of one connection"
    with server.raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") as plain:
        assert not receive(plain).startswith(b"HTTP/1.1 200"), "nothing in the clear"
    with pytest.raises(ssl.SSLError):
        Client(server.port, context=ssl.create_default_context()).get("/healthz")
    assert Client(server.admin_port, context=client_context(ca)).get("/metrics").status == 200


def test_client_certificates(new_server, certificates):
    ca = str(certificates / "ca.pem")
    server = tls_server(new_server, certificates, client_ca=ca)
    pair = str(certificates / "client.pem"), str(certificates / "client.key")
    assert Client(server.port, context=client_context(ca, *pair)).get("/healthz").status == 200
    with pytest.raises((ssl.SSLError, OSError)):
        Client(server.port, context=client_context(ca)).get("/healthz")


def test_tls_files_that_cannot_be_used(new_server, certificates):
    for name, key in (("missing.pem", "server.key"), ("server.key", "server.pem"), ("ca.pem", "client.key")):
        pair = {"certificate": str(certificates / name), "key": str(certificates / key)}
        server = new_server({"tls": pair}).launch()
        assert server.wait() == 1
        assert name in server.log_text() or key in server.log_text(), server.log_text()
