"""Certificates of the kind that tutorials make, and what the command line says of them."""

import subprocess

import pytest

from harness import binary

SAN = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]


def self_signed(folder, *more):
    """A certificate and its key, as `openssl req -x509` makes them."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"]
    done = subprocess.run([*command, "-subj", "/CN=localhost", "-days", "2", *more], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr


def namespaces(server, folder, *options, host="127.0.0.1"):
    """Asks over TLS; returns the exit code and what was said."""
    address = f"https://{host}:{server.port}"
    done = subprocess.run(
        [binary(), "ns", "ls", "--server", address, *options], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr


@pytest.fixture
def serve(new_server, folder):
    def start():
        files = {"certificate": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
        return new_server({"server": {"drain_delay": "0s"}, "tls": files}).start()

    return start


def test_a_self_signed_certificate_that_is_named_is_trusted(serve, folder):
    self_signed(folder, *SAN)
    server = serve()
    for host in ("127.0.0.1", "localhost"):
        assert namespaces(server, folder, "--ca-file", "cert.pem", host=host) == (0, "")
    code, said = namespaces(server, folder)
    assert code == 1 and "not among the trusted ones" in said and "--ca-file" in said and "-k" in said, said
    assert "start a server" not in said
    assert namespaces(server, folder, "-k") == (0, "")
    assert namespaces(server, folder, "--insecure-skip-verify") == (0, "")
    (folder / "other").mkdir()
    self_signed(folder / "other", *SAN)
    code, said = namespaces(server, folder, "--ca-file", "other/cert.pem")
    assert code == 1 and "certificate" in said, said


@pytest.mark.parametrize(
    "more, reason",
    [
        ([], "it has no host in a subjectAltName"),
        (["-addext", "subjectAltName=DNS:umbo.example.org"], "is for umbo.example.org, not for 127.0.0.1"),
    ],
    ids=("no name", "another name"),
)
def test_what_is_wrong_with_a_certificate_is_said(serve, folder, more, reason):
    self_signed(folder, *more)
    server = serve()
    code, said = namespaces(server, folder, "--ca-file", "cert.pem")
    assert code == 1 and reason in said, said
    assert namespaces(server, folder, "-k")[0] == 0


def test_a_self_signed_certificate_that_has_expired_is_refused(serve, folder):
    self_signed(folder, *SAN)
    (folder / "index.txt").touch()
    (folder / "serial").write_text("01\n")
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\n"
        "policy=any\n[any]\ncommonName=supplied\n"
        "[extensions]\nbasicConstraints=critical,CA:TRUE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n"
    )
    ask = ["openssl", "req", "-new", "-key", "key.pem", "-subj", "/CN=localhost", "-out", "asked.pem"]
    sign = ["openssl", "ca", "-batch", "-selfsign", "-config", "ca.cnf", "-extensions", "extensions", "-notext"]
    sign += ["-keyfile", "key.pem", "-in", "asked.pem", "-out", "cert.pem"]
    sign += ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
    for command in (ask, sign):
        done = subprocess.run(command, cwd=folder, capture_output=True)
        assert done.returncode == 0, done.stderr
    server = serve()
    code, said = namespaces(server, folder, "--ca-file", "cert.pem")
    assert code == 1 and "expired" in said, said
    assert namespaces(server, folder, "-k")[0] == 0
