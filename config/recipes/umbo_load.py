"""Loads files into a namespace of Umbo, step by step: for schedulers, which repeat each step by themselves. Needs
nothing but Python 3.9. Each step may be repeated: it finds what it has done before."""

import base64
import hashlib
import itertools
import json
import os
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

MEDIA_TYPES = {".ndjson": "application/x-ndjson", ".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}
CODINGS = {".gz": "gzip", ".zst": "zstd"}
ENDED = ("live", "superseded", "rolled-back", "failed", "aborted")


class Refused(Exception):
    """The server has refused a request: `status`, and its `problem` as a dictionary."""

    def __init__(self, status, problem):
        super().__init__(f"{problem.get('title', status)}: {problem.get('detail', '')}")
        self.status, self.problem = status, problem


class Failed(Exception):
    """The load has ended otherwise than with all its rows live."""


class Loads:
    """The loads of a namespace."""

    def __init__(self, namespace, url=None, token=None):
        url = url or os.environ.get("UMBO_URL", "http://127.0.0.1:8080")
        self.base = f"{url}/v1/ns/{quote(namespace)}/loads"
        self.token = token or os.environ.get("UMBO_TOKEN")

    def ask(self, method, path="", body=None, timeout=600, **fields):
        """Sends a request and returns the JSON of its answer."""
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            with urlopen(Request(self.base + path, body, headers, method=method), timeout=timeout) as answer:
                return json.loads(answer.read())
        except HTTPError as refusal:
            text = refusal.read()
            raise Refused(refusal.code, json.loads(text) if text.startswith(b"{") else {}) from None

    def create(self, key, **spec):
        """Creates a load, or finds the one that was created with the same key and has not failed. Returns its id."""
        body = json.dumps({"mode": "replace", "activate": True} | spec, sort_keys=True).encode()
        for again in itertools.count():
            fields = {"content_type": "application/json", "idempotency_key": f"{key}-{again}"}
            info = self.ask("POST", body=body, **fields)
            if info["state"] not in ("failed", "aborted"):
                return info["id"]

    def upload(self, load, number, path):
        """Uploads a file as a part; the number says its place among the parts, from 0."""
        stem, ending = os.path.splitext(path)
        coding = CODINGS.get(ending, "identity")
        media_type = MEDIA_TYPES[os.path.splitext(stem)[1] if ending in CODINGS else ending]
        with open(path, "rb") as file:
            body = file.read()
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        fields = {"content_type": media_type, "content_encoding": coding, "content_digest": f"sha-256=:{digest}:"}
        return self.ask("PUT", f"/{load}/parts/{number}", body, **fields)

    def seal(self, load, parts):
        """Says that all parts are there; their rows are checked and applied then."""
        return self.ask("POST", f"/{load}/seal", json.dumps({"parts": parts}).encode(), content_type="application/json")

    def look(self, load):
        """Returns the load as it is now."""
        return self.ask("GET", f"/{load}", timeout=60)

    def is_live(self, load):
        """Returns whether all rows are live, or raises if they never will be. To be asked again and again."""
        info = self.look(load)
        if info["state"] in ENDED and (info["state"] != "live" or info["rows_rejected"]):
            rejected = info["rows_rejected"]
            raise Failed(f"load {load} is {info['state']}: {info.get('reason', f'{rejected} rows cannot be read')}")
        return info["state"] == "live"

    def abandon(self, load):
        """Aborts a load that has not ended, so that it does not keep the next one out."""
        if self.look(load)["state"] not in ENDED:
            self.ask("POST", f"/{load}/abort")
