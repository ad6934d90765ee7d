"""Clients that the usual generators make of the document compile, and bring a row there and back.

Generators and what their clients need come from the registries of their languages, each of one version, and are kept
in target/generators.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from harness import Server, memory_folder
from processes import PROJECT

HERE = pathlib.Path(__file__).parent
TOOLS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target")) / "generators"
JAVA_GENERATOR = "org.openapitools:openapi-generator-cli:7.25.0"
# A download and a build of a generator, on a machine that does more besides.
STEP_SECONDS = 600


@pytest.fixture(scope="module")
def server():
    with memory_folder() as folder, Server(folder) as server:
        server.start()
        document = server.client().get("/openapi.json")
        assert document.status == 200 and len(document.body) < 400_000, len(document.body)
        (folder / "openapi.json").write_bytes(document.body)
        yield server
        server.stop()


def run(folder, *command, **environment):
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True,
        timeout=STEP_SECONDS, env=os.environ | environment,
    )  # fmt: skip
    output = done.stdout + done.stderr
    if done.returncode != 0:
        pytest.fail(f"{command[0]}: {output[-8_000:]}")
    return output


def workshop(server, language):
    """A folder with the files of a language and the document; what was fetched before is still there."""
    folder = TOOLS / language
    shutil.copytree(HERE / language, folder, dirs_exist_ok=True)
    shutil.copy(server.folder / "openapi.json", folder)
    return folder


def check_round_trip(server, folder, *command, **environment):
    output = run(folder, *command, f"http://127.0.0.1:{server.port}", **environment)
    assert output.endswith("round trip done\n"), output


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
    run(folder, "npm", "ci", "--no-audit", "--no-fund")
    run(folder, "npx", "openapi-typescript", "openapi.json", "-o", "schema.d.ts")
    run(folder, "npx", "tsc", "-p", ".")
    check_round_trip(server, folder, "node", "out/roundtrip.js")


def test_go(server):
    folder = workshop(server, "go")
    (folder / "umbo").mkdir(exist_ok=True)
    generate = ("oapi-codegen", "-generate", "types,client", "-package", "umbo", "-o", "umbo/client.gen.go")
    run(folder, "go", "tool", *generate, "openapi.json", GOFLAGS="-mod=readonly")
    run(folder, "go", "build", "-o", "roundtrip", ".", GOFLAGS="-mod=readonly -buildvcs=false")
    check_round_trip(server, folder, "./roundtrip")


def jars(folder, *command):
    """Fetches jars with Maven, where they are not there yet."""
    to = folder / f"jars-{command[0].replace(':', '-')}"
    if not to.exists():
        arrived = to.with_suffix(".part")
        run(folder, "mvn", "-q", "-B", *command, f"-DoutputDirectory={arrived}")
        arrived.rename(to)
    return sorted(to.iterdir())


def test_java(server):
    folder = workshop(server, "java")
    (generator,) = jars(folder, "dependency:copy", f"-Dartifact={JAVA_GENERATOR}")
    libraries = jars(folder, "dependency:copy-dependencies")
    for made in ("client", "classes"):
        shutil.rmtree(folder / made, ignore_errors=True)
    options = "openApiNullable=false,useSingleRequestParameter=true"
    generate = ("generate", "-g", "java", "--additional-properties", options)
    run(folder, "java", "-jar", generator, *generate, "-i", "openapi.json", "-o", "client")
    sources = sorted((folder / "client/src/main").rglob("*.java"))
    classes = ("-cp", f"{':'.join(map(str, libraries))}:classes")
    run(folder, "javac", "-nowarn", *classes, "-d", "classes", *sources, "Roundtrip.java")
    check_round_trip(server, folder, "java", *classes, "Roundtrip")
