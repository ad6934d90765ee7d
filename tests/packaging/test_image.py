"""The image: what it is made of, how it starts, and that its health check tells alive from dead."""

import os
import re
import socket
import subprocess
import threading

import pytest

from package import IMAGE, Image, settings_of, umbo
from processes import PROJECT


@pytest.fixture(scope="module")
def image():
    return Image()


def test_it_is_built_in_one_stage_and_run_in_a_small_other_one(image):
    assert len(image.stages) == 2
    assert image.stages[0].startswith("rust:") and image.stages[0].endswith(" AS build")
    assert re.fullmatch(r"debian:[a-z]+-slim", image.stages[1])
    debian = re.search(r"-([a-z]+) ", image.stages[0]).group(1)
    assert f":{debian}-" in image.stages[1], "one C library at both ends"
    version = re.search(r"rust:([\d.]+)", image.stages[0]).group(1)
    manifest = (PROJECT / "Cargo.toml").read_text()
    assert f'rust-version = "{version}"' in manifest
    builds = [words for name, words in image.instructions if "cargo build" in words]
    assert len(builds) == 1 and "--locked" in builds[0] and "--release" in builds[0]
    assert "--bin umbo" in builds[0]


def test_everything_that_is_copied_is_there(image):
    copied = [words.split() for name, words in image.instructions if name == "COPY"]
    from_build = [words[1:] for words in copied if words[0] == "--from=build"]
    assert ["/umbo", "/usr/local/bin/umbo"] in from_build
    assert [words for words in copied if not words[0].startswith("--")] == [[".", "."]]
    ignored = (PROJECT / ".dockerignore").read_text().split()
    for needed in ("Cargo.toml", "Cargo.lock", "crates", "loadtest", "tests"):
        assert (PROJECT / needed).exists() and needed not in ignored
    for not_needed in ("target", "data", ".git"):
        assert not_needed in ignored


def test_nothing_of_the_binary_is_built_from_what_is_ignored():
    for source in (PROJECT / "crates").glob("*/src/**/*.rs"):
        text = source.read_text().split("#[cfg(test)]")[0]
        included = re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', text)
        if source.name != "tests.rs":
            assert not [path for path in included if "/config/" in path or "/data/" in path], source


def test_it_is_nobody_of_importance_and_owns_its_data(image):
    user, group = image.one("USER").split(":")
    assert int(user) > 0 and int(group) > 0
    made = " ".join(image.all("RUN"))
    assert f"--uid {user}" in made and "--owner=umbo" in made
    folder = image.environment()["UMBO__STORE__FOLDER"]
    assert image.one("VOLUME") == folder and f" {folder}" in made
    assert image.one("STOPSIGNAL") == "SIGTERM"


def test_it_starts_the_binary_with_settings_that_exist(image):
    assert image.entrypoint() == [IMAGE]
    assert umbo("serve", "--help").returncode == 0
    settings = settings_of(image.environment())
    shown = umbo("config", "show", environment=settings)
    assert shown.returncode == 0, shown.stderr
    for name, value in settings.items():
        key = name.lower().split("__")[-1]
        assert re.search(rf'^{key} += +"{re.escape(value)}" +# .*{name}', shown.stdout, re.M), (name, shown.stdout)
    listens = {int(value.rsplit(":", 1)[1]) for name, value in settings.items() if name.endswith("LISTEN")}
    assert listens == image.ports()
    assert int(image.environment()["HEALTH_PORT"]) in listens


def test_a_setting_that_does_not_exist_would_be_noticed():
    shown = umbo("config", "show", environment={"UMBO__SERVER__LISTN": "127.0.0.1:1"})
    assert shown.returncode != 0 and "UMBO__SERVER__LISTEN" in shown.stderr


def health(image, port):
    environment = {"PATH": os.environ["PATH"], "HEALTH_PORT": str(port)}
    return subprocess.run(image.health_check(), env=environment, capture_output=True, timeout=30).returncode


def test_the_health_check_knows_a_server_that_lives(image, server):
    assert health(image, server.admin_port) == 0
    assert health(image, server.port) == 0


def test_the_health_check_knows_what_is_dead(image):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer():
            with listener.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert health(image, port) != 0, "it answers, but not well"
        thread.join()
    assert health(image, port) != 0, "nobody listens"
