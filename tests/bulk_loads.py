"""Loads through plain HTTP, for the tests of this folder. Decides nothing about what is right."""

import base64
import hashlib
import json

from harness import NDJSON, wait_until

ENDED = ("live", "superseded", "rolled-back", "failed", "aborted")


def lines(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def digest(body):
    """A Content-Digest of a body."""
    return "sha-256=:" + base64.b64encode(hashlib.sha256(body).digest()).decode() + ":"


class Load:
    """A load through one client."""

    def __init__(self, client, namespace, load_id):
        self.client, self.namespace, self.id = client, namespace, load_id
        self.base = f"/v1/ns/{namespace}/loads/{load_id}"

    @classmethod
    def create(cls, client, namespace, **spec):
        answer = client.post(f"/v1/ns/{namespace}/loads", {"mode": "merge"} | spec)
        assert answer.status == 201, answer
        info = answer.json()
        assert answer.headers["location"] == f"/v1/ns/{namespace}/loads/{info['id']}"
        assert info["state"] == "created"
        return cls(client, namespace, info["id"])

    def through(self, client):
        """The same load through another client."""
        return Load(client, self.namespace, self.id)

    def put(self, number, body, content_type=NDJSON, **headers):
        return self.client.put(f"{self.base}/parts/{number}", body, content_type=content_type, **headers)

    def patch(self, number, body, offset, complete=False, content_type=NDJSON, **headers):
        fields = {"Upload-Offset": str(offset), "Upload-Complete": "?1" if complete else "?0"}
        if content_type:
            fields["Content-Type"] = content_type
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.request("PATCH", f"{self.base}/parts/{number}", body, fields)

    def offset(self, number):
        """Bytes that are kept of a part, and whether it is whole; none where nothing is."""
        answer = self.client.request("HEAD", f"{self.base}/parts/{number}")
        if answer.status == 404:
            return None
        assert answer.status == 204, answer
        return int(answer.headers["upload-offset"]), answer.headers["upload-complete"] == "?1"

    def post(self, step, body=b""):
        return self.client.post(f"{self.base}/{step}", body)

    def seal(self, parts):
        answer = self.post("seal", {"parts": parts})
        assert answer.status == 200, answer
        return answer.json()

    def info(self):
        answer = self.client.get(self.base)
        assert answer.status == 200, answer
        return answer.json()

    def reached(self, *states):
        """The load if it is in one of these states; it must not have ended in another one."""
        info = self.info()
        assert info["state"] not in ENDED or info["state"] in states, info
        return info if info["state"] in states else None

    def wait_for(self, *states):
        return wait_until(lambda: self.reached(*states), f"the load is {states}")

    def rejects(self, query=""):
        """All rejects, page after page."""
        rejects, page = [], f"{self.base}/rejects{query}"
        while page:
            answer = self.client.get(page)
            assert answer.status == 200, answer
            rejects += answer.lines() if answer.body else []
            link = answer.headers.get("link")
            page = link and link.removeprefix("<").removesuffix('>; rel="next"')
        return rejects


def load_rows(client, namespace, *parts, **spec):
    """Loads parts of rows and waits until they are live."""
    load = Load.create(client, namespace, **spec)
    for number, rows in enumerate(parts):
        assert load.put(number, lines(rows)).status == 201
    load.seal(len(parts))
    return load, load.wait_for("live")


def build(ns, dataset, **spec):
    """Uploads and seals the next version of a namespace."""
    load = Load.create(ns.client, ns.name, mode="replace", **spec)
    half = len(dataset) // 2
    for number, part in enumerate((dataset[:half], dataset[half:])):
        assert load.put(number, lines(part)).status == 201
    load.seal(2)
    return load


def versions(ns):
    """Versions of a namespace, by number."""
    answer = ns.client.get(f"/v1/ns/{ns.name}/versions")
    assert answer.status == 200, answer
    return {version["number"]: version for version in answer.json()["versions"]}


def activate(ns, number, query=""):
    return ns.client.post(f"/v1/ns/{ns.name}/versions/{number}/activate{query}")


def rollback(ns, query=""):
    return ns.client.post(f"/v1/ns/{ns.name}/versions/rollback{query}")
