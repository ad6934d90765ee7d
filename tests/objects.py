"""An object store on loopback."""

import contextlib
import http.client
import subprocess
import sys

from harness import wait_until
from tier import free_port


class ObjectStore:
    """An object store with the bucket 'bucket', and the variables by which it is reached."""

    def __init__(self, port):
        self.port = port
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        self.variables = keys | {"AWS_ENDPOINT": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}

    def request(self, method, path, body=b""):
        """Status and body of the answer to a request, whose signature is not checked."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, path, body, {"Authorization": "AWS key:none"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def put(self, key, body):
        status, said = self.request("PUT", f"/bucket/{key}", body)
        assert status == 200, said

    def get(self, key):
        """An object; none if there is none."""
        status, body = self.request("GET", f"/bucket/{key}")
        return body if status == 200 else None

    def has_uploads(self):
        """Whether an upload in parts was begun and neither completed nor aborted."""
        return b"<UploadId>" in self.request("GET", "/bucket?uploads")[1]


@contextlib.contextmanager
def served_objects():
    store = ObjectStore(free_port())
    arguments = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(store.port)]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def has_bucket():
        assert process.poll() is None, "the object store ended"
        try:
            return store.request("PUT", "/bucket")[0] == 200
        except OSError:
            return False

    try:
        wait_until(has_bucket, "the object store serves")
        yield store
    finally:
        process.kill()
        process.wait()
