"""Folders in which clients are generated, compiled and run, one a language.

Generators and what their clients need come from the registries of their languages, each of one version, and are kept
in target/generators.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

from processes import PROJECT

HERE = pathlib.Path(__file__).parent
TOOLS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target")) / "generators"
# A download and a build of a generator, on a machine that does more besides.
STEP_SECONDS = 600


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
