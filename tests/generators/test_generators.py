"""Clients that the usual generators make of the document compile, and bring a row there and back."""

import shutil
import sys

from languages import HERE, TOOLS, check_round_trip, run, workshop
from processes import install_npm_packages


def test_python(server):
    folder = TOOLS / "python"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    generate = ("openapi_python_client", "generate", "--meta", "none", "--output-path", folder / "umbo_generated")
    output = run(folder, sys.executable, "-m", *generate, "--path", server.folder / "openapi.json")
    assert "Endpoint will not be generated" not in output, output
    check_round_trip(server, folder, sys.executable, HERE / "roundtrip.py", PYTHONPATH=str(folder))


def test_typescript(server):
    folder = workshop(server, "typescript")
    wanted, installed = folder / "package-lock.json", folder / "installed-lock.json"
    if not installed.exists() or installed.read_bytes() != wanted.read_bytes():
        install_npm_packages(folder)
        shutil.copy(wanted, installed)
    programs = folder / "node_modules/.bin"
    run(folder, programs / "openapi-typescript", "openapi.json", "-o", "schema.d.ts")
    run(folder, programs / "tsc", "-p", ".")
    check_round_trip(server, folder, "node", "out/roundtrip.js")


def test_go(server):
    folder = workshop(server, "go")
    (folder / "umbo").mkdir(exist_ok=True)
    generate = ("oapi-codegen", "-generate", "types,client", "-package", "umbo", "-o", "umbo/client.gen.go")
    run(folder, "go", "tool", *generate, "openapi.json", GOFLAGS="-mod=readonly")
    run(folder, "go", "build", "-o", "roundtrip", ".", GOFLAGS="-mod=readonly -buildvcs=false")
    check_round_trip(server, folder, "./roundtrip")
