"""A real Prometheus on loopback, and what it knows."""

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request

import yaml

from processes import PROJECT, WAIT_SECONDS, wait_until
from tier import free_port

RULES = PROJECT / "config/prometheus"
TOOLS = PROJECT / "target/tools"


def tool(name):
    """A program of Debian's package `prometheus`."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{TOOLS}")
    assert path, f"{name} is not there: tests/run gets it"
    return path


def promtool(*arguments, text=None):
    """Runs promtool; it must find nothing wrong."""
    command = [tool("promtool"), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A process of `prometheus` that scrapes each second."""

    def __init__(self, folder, jobs):
        self.folder, self.port = folder, free_port()
        # The rules as they are, but for how often they are evaluated.
        for file in RULES.glob("*.yml"):
            text = re.sub(r"(?m)^    interval: \w+$", "    interval: 1s", file.read_text())
            (folder / f"rules-{file.name}").write_text(text)
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules-*.yml")],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": targets}]} for name, targets in jobs.items()
            ],
        }
        self.file = folder / "prometheus.yml"
        self.file.write_text(yaml.safe_dump(settings))
        self.process = None

    def __enter__(self):
        self.log = open(self.folder / "prometheus.log", "wb")
        self.process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={self.file}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        wait_until(self.is_ready, "prometheus is ready")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def is_ready(self):
        assert self.process.poll() is None, (self.folder / "prometheus.log").read_text()
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def api(self, path, **query):
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            found = json.load(answer)
        assert found["status"] == "success" and not found.get("warnings"), found
        return found["data"]

    def query(self, expression):
        """The samples of an expression now, without those that are no number."""
        samples = self.api("query", query=expression)["result"]
        return [one for one in samples if one["value"][1] != "NaN"]
