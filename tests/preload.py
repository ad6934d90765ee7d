"""Builds the libraries in C that tests put before the C library of a process."""

import atexit
import functools
import pathlib
import shutil
import subprocess
import tempfile


@functools.cache
def preloaded(source):
    """The library of a source file, built once in each process that runs tests."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="umbo-test-library-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / pathlib.Path(source).with_suffix(".so").name
    command = ["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return str(library)
