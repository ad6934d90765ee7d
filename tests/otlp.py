"""A collector of spans: OTLP over gRPC, as far as a test needs it.

Speaks HTTP/2 just well enough to be sent spans by the binary: whatever is asked, it answers an empty
message and keeps what it was sent. Reads protobuf by field numbers, those of opentelemetry-proto.
"""

import socket
import struct
import threading
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK, PADDED = 1, 4, 1, 8
# Nothing that a test sends is larger.
WINDOW = 1 << 24


@dataclass
class Span:
    name: str
    trace: str
    id: str
    parent: str
    started: int
    ended: int
    attributes: dict = field(default_factory=dict)
    is_error: bool = False


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Fields of a message: (number, value), in order."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            assert kind == 5, kind
            value, at = struct.unpack_from("<I", data, at)[0], at + 4
        yield number, value


def within(data, number):
    return [value for found, value in fields(data) if found == number]


def attribute(data):
    (name,), values = within(data, 1), within(data, 2)
    for number, value in fields(values[0]):
        return name.decode(), value.decode() if number == 1 else value
    return name.decode(), None


def span_of(data):
    one = dict(fields(data))
    return Span(
        name=one[5].decode(),
        trace=one[1].hex(),
        id=one[2].hex(),
        parent=one.get(4, b"").hex(),
        started=one[7],
        ended=one[8],
        attributes=dict(attribute(pair) for pair in within(data, 9)),
        is_error=2 in [value for status in within(data, 15) for value in within(status, 3)],
    )


def spans_of(request):
    """Spans of an ExportTraceServiceRequest."""
    scopes = (scope for resource in within(request, 1) for scope in within(resource, 2))
    return [span_of(span) for scope in scopes for span in within(scope, 2)]


def literal(name, value):
    """A header that is put into no table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class Collector:
    """Listens on a port of loopback for as long as the block lasts."""

    def __enter__(self):
        self.spans, self.lock, self.sockets = [], threading.Lock(), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        for sock in self.sockets:
            sock.close()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            self.converse(sock, sock.makefile("rb"))
        except (OSError, ValueError, struct.error):
            pass  # The other side has left.

    def converse(self, sock, reader):
        assert reader.read(len(PREFACE)) == PREFACE

        def send(kind, flags=0, stream=0, payload=b""):
            sock.sendall(len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload)

        # SETTINGS_INITIAL_WINDOW_SIZE
        send(SETTINGS, payload=struct.pack(">HI", 4, WINDOW))
        bodies = {}
        while head := reader.read(9):
            length, (kind, flags, stream) = int.from_bytes(head[:3], "big"), struct.unpack(">BBI", head[3:])
            payload = reader.read(length)
            if kind == SETTINGS and not flags & ACK:
                send(SETTINGS, ACK)
            elif kind == PING and not flags & ACK:
                send(PING, ACK, payload=payload)
            elif kind == DATA:
                assert not flags & PADDED
                bodies[stream] = bodies.get(stream, b"") + payload
                if length:
                    send(WINDOW_UPDATE, payload=struct.pack(">I", length))
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                self.keep(bodies.pop(stream))
                # 8 of the static table is `:status: 200`.
                send(HEADERS, END_HEADERS, stream, b"\x88" + literal(b"content-type", b"application/grpc"))
                send(DATA, 0, stream, bytes(5))
                send(HEADERS, END_HEADERS | END_STREAM, stream, literal(b"grpc-status", b"0"))

    def keep(self, body):
        """A message of gRPC: not compressed, its length, and then it."""
        assert body[0] == 0 and int.from_bytes(body[1:5], "big") == len(body) - 5
        with self.lock:
            self.spans += spans_of(body[5:])

    def received(self):
        with self.lock:
            return list(self.spans)
