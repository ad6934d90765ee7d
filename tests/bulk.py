"""Runs imports and exports of the command line beside servers that come and go."""

import json
import os
import pathlib
import subprocess
import threading

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


def step_until(clock, is_so, what, step=0.25):
    """Lets time pass in steps until it is so, and returns what it said. The clock stands still between the steps: what
    is paced gets no further while the test does not look, however slow the machine is."""
    steps, has_ended = threading.Lock(), threading.Event()

    def advance():
        with steps:
            clock.advance(step)

    def advance_slowly():
        # A question may itself wait for time to pass.
        while not has_ended.wait(1):
            advance()

    slowly = threading.Thread(target=advance_slowly, daemon=True)
    slowly.start()
    try:
        return wait_until(lambda: is_so() or advance(), what)
    finally:
        has_ended.set()
        slowly.join()


def end_of(command, clock, step=0.25):
    """Lets time pass in steps until a command has ended; returns what it said on stderr."""
    step_until(clock, lambda: command.poll() is not None, "the command ends", step)
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


def restart(server, away=0):
    """Kills a server whose clock stands still and starts it again, after some time of that clock."""
    server.kill()
    server.clock.advance(away)
    if server.owns_tier:
        nodes = server.tier.launch().nodes.values()
        step_until(server.clock, lambda: all(node.readiness() == 200 for node in nodes), "the nodes serve")
    server.launch()
    serves = lambda: not server.is_running() or "umbo serves" in server.log_text()
    step_until(server.clock, serves, "the server serves")
    server.wait_until_it_serves()
