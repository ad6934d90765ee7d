"""Runs imports and exports of the command line beside servers that come and go."""

import json
import os
import pathlib
import subprocess

from harness import binary, wait_until

# Bulk work must not give up while a server starts on a busy machine.
PATIENCE = ["--patience", "3m"]


def row(number, value=None):
    value = f"value {number} " + "x" * 40 if value is None else value
    return {"pk": f"p{number % 50_000}", "sk": f"{number}", "v": value}


def write_rows(path, count):
    """A file of rows in an order that is not that of their keys."""
    with open(path, "w", encoding="utf-8") as lines:
        for at in range(count):
            lines.write(json.dumps(row(at * 7919 % count), separators=(",", ":")) + "\n")


def read_rows(path):
    """The rows of a file by key, and its end line."""
    rows, end = {}, None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            assert end is None, "the end line is the last"
            line = json.loads(line)
            if "end" in line:
                end = line["end"]
                continue
            key = line["pk"], line.get("sk", "")
            assert key not in rows, f"{key} twice"
            rows[key] = line["v"]
    return rows, end


def environment(server):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}
    return clean | {"UMBO_SERVER": f"http://127.0.0.1:{server.port}"}


def start(server, *arguments, folder, clock=None, **more):
    """Starts a command beside a server; it lives by a clock if it is given one."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    by_clock = clock.environment() if clock else {}
    return subprocess.Popen([binary(), *arguments], env=environment(server) | by_clock, cwd=folder, **pipes)


def step_until(clock, is_so, what, step=0.1):
    """Lets time pass in steps until it is so, and returns what it said. The clock stands still between the steps: what
    is paced gets no further while the test does not look, however slow the machine is."""

    def look():
        if not (result := is_so()):
            clock.advance(step)
        return result

    return wait_until(look, what)


def end_of(command, clock):
    """Lets time pass in steps until a command has ended; returns what it said on stderr."""
    step_until(clock, lambda: command.poll() is not None, "the command ends")
    return command.communicate()[1].decode()


def run(server, *arguments, folder, code=0, **more):
    """Runs a command to its end; returns what it said."""
    done = subprocess.run(
        [binary(), *arguments], env=environment(server), cwd=folder, capture_output=True, timeout=300, **more
    )
    said = done.stderr.decode()
    assert done.returncode == code, (done.returncode, said[-4000:])
    return said


def files_of(folder, name):
    """What a command has left beside a file."""
    return sorted(path.name for path in pathlib.Path(folder).glob(f"{name}*") if path.name != name)
