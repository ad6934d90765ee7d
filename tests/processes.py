"""Starts, watches and ends processes of the real binary, for the tests of this folder.

Owns nothing but processes: what they serve is the business of harness.py and tier.py. Every wait is
bounded; only processes started here are ever signalled.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

PROJECT = pathlib.Path(__file__).resolve().parent.parent
WAIT_SECONDS = 300


def binary():
    """The server under test: UMBO_BIN, or what `cargo build` left."""
    path = pathlib.Path(os.environ.get("UMBO_BIN", PROJECT / "target/debug/umbo"))
    assert path.is_file(), f"{path} does not exist; run: cargo build --bin umbo"
    return str(path)


def wait_until(is_so, what, seconds=WAIT_SECONDS):
    """Asks again and again until it is so, and returns what it said; fails after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        if result := is_so():
            return result
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def install_npm_packages(folder):
    """Installs what the lock file of a folder names. A name server that is away for a moment is asked again."""

    def is_done():
        command = ["npm", "ci", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        said = done.stdout + done.stderr
        assert done.returncode == 0 or "EAI_AGAIN" in said, said
        return done.returncode == 0

    wait_until(is_done, "the packages are installed")


def toml_text(settings):
    text = ""
    for section, values in settings.items():
        text += f"[{section}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items())
    return text


class Process:
    """One process of the binary, with its log. `folder` holds its settings and is where it runs.

    `prefix` is put before the command, to run it elsewhere than here.
    """

    prefix = ()

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        # Lives by the time of the machine where it is given none.
        self.clock = None
        self.process, self.log, self.reader = None, [], None

    def spawn(self, arguments, settings, environment=None):
        """Starts `umbo ARGUMENTS --config …` without waiting for anything."""
        self.folder.mkdir(exist_ok=True, parents=True)
        config = self.folder / "umbo.toml"
        config.write_text(toml_text(settings))
        role, *flags = arguments
        clean = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}
        more = dict(environment or {})
        if self.clock:
            by_clock = self.clock.environment()
            libraries = [by_clock["LD_PRELOAD"], more.get("LD_PRELOAD")]
            more |= by_clock | {"LD_PRELOAD": " ".join(filter(None, libraries))}
        self.log = []
        self.process = subprocess.Popen(
            [*self.prefix, binary(), role, "--config", str(config), *flags],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            env=clean | more,
        )
        self.reader = threading.Thread(target=self.read_log, args=(self.process.stderr, self.log))
        self.reader.daemon = True
        self.reader.start()

    @staticmethod
    def read_log(stream, log):
        for line in stream:
            log.append(line.decode(errors="replace").rstrip())

    def log_text(self):
        return "\n".join(self.log)

    def logged(self, level):
        """Messages of a level."""
        return [line for line in list(self.log) if f'"level":"{level}"' in line]

    def wait(self, seconds=WAIT_SECONDS):
        """Waits for the end of the process; returns its exit code."""
        code = self.process.wait(seconds)
        self.reader.join(seconds)
        self.process.stderr.close()
        assert "panicked" not in self.log_text(), self.log_text()
        return code

    def stop(self):
        """SIGTERM and a good end."""
        self.process.send_signal(signal.SIGTERM)
        self.wait_for_good_end()

    def wait_for_good_end(self):
        code = self.wait()
        assert code == 0, f"exit code {code}: {self.log_text()}"

    def kill(self):
        """kill -9."""
        self.process.kill()
        self.wait()

    def pause(self):
        """SIGSTOP: it is there and does nothing, not even on one of its threads."""
        self.process.send_signal(signal.SIGSTOP)
        threads = pathlib.Path(f"/proc/{self.process.pid}/task")
        states = lambda: {(one / "stat").read_text().rpartition(")")[2].split()[0] for one in threads.iterdir()}
        wait_until(lambda: states() == {"T"}, "all of it stands still")

    def resume(self):
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def discard(self):
        """Kills it if it still runs, whatever it was doing."""
        if self.is_running():
            self.kill()
        elif self.process is not None and not self.process.stderr.closed:
            self.wait()

    def memory(self, field="VmRSS"):
        """Resident memory in bytes; VmHWM is its peak."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", status).group(1)) * 1024

    def reset_peak_memory(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
