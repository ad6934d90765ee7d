"""A collector of spans, metrics and log lines: OTLP over gRPC, as far as a test needs it.

Speaks HTTP/2 just well enough to be sent all of them by the binary: it answers each request with an empty
message and keeps what it was sent. Reads protobuf by field numbers, those of opentelemetry-proto.
"""

import contextlib
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


@dataclass
class Point:
    """A point of a metric. `value` is a number, or of a histogram (count, sum, [(bound, cumulative count)])."""

    name: str
    description: str
    unit: str
    kind: str  # "gauge", "sum" or "histogram"
    attributes: dict
    started: int
    time: int
    value: object
    is_cumulative: bool = False
    is_monotonic: bool = False
    resource: dict = field(default_factory=dict)


@dataclass
class Line:
    """A line of a log."""

    message: str
    severity: str
    attributes: dict
    time: int
    resource: dict = field(default_factory=dict)


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


def resource_of(data):
    return dict(attribute(pair) for resource in within(data, 1) for pair in within(resource, 1))


def is_span(data):
    """Whether this is a span and not a metric: the id of a trace stands where a metric has its name."""
    return len(within(data, 1)[0]) == 16 and isinstance(dict(fields(data)).get(7), int)


def is_line(data):
    """Whether this is a line of a log: only that has an instant in field 11, when it was observed."""
    return isinstance(dict(fields(data)).get(11), int)


def line_of(resource, data):
    one = dict(fields(data))
    return Line(
        message=dict(fields(one[5]))[1].decode(),
        severity=one[3].decode(),
        attributes=dict(attribute(pair) for pair in within(data, 6)),
        time=one[11],
        resource=resource,
    )


def messages_of(request):
    """Spans, metrics or log lines of an export request, each with its resource."""
    for data in within(request, 1):
        for scope in within(data, 2):
            for one in within(scope, 2):
                yield resource_of(data), one


def double(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def packed(values):
    """Repeated fixed64, which may be packed."""
    for value in values:
        yield from struct.unpack(f"<{len(value) // 8}Q", value) if isinstance(value, bytes) else (value,)


def number_of(point):
    one = dict(fields(point))
    if 4 in one:
        return double(one[4])
    return struct.unpack("<q", struct.pack("<Q", one.get(6, 0)))[0]


def histogram_of(point):
    one, count, buckets = dict(fields(point)), 0, []
    bounds = [double(bound) for bound in packed(within(point, 7))] + [float("inf")]
    for bound, own in zip(bounds, packed(within(point, 6)), strict=True):
        count += own
        buckets.append((bound, count))
    return one.get(4, 0), double(one[5]), buckets


def points_of(resource, metric):
    """Points of a Metric."""
    one = dict(fields(metric))
    kind, data = next((kind, one[number]) for number, kind in ((5, "gauge"), (7, "sum"), (9, "histogram")) if number in one)
    about = dict(fields(data))
    for point in within(data, 1):
        own = dict(fields(point))
        yield Point(
            name=one[1].decode(),
            description=one[2].decode(),
            unit=one[3].decode(),
            kind=kind,
            attributes=dict(attribute(pair) for pair in within(point, 9 if kind == "histogram" else 7)),
            started=own.get(2, 0),
            time=own[3],
            value=histogram_of(point) if kind == "histogram" else number_of(point),
            is_cumulative=about.get(2) == 2,
            is_monotonic=bool(about.get(3)),
            resource=resource,
        )


def literal(name, value):
    """A header that is put into no table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class Collector:
    """Listens on a port of loopback for as long as the block lasts."""

    def __init__(self, port=0):
        self.port = port

    def __enter__(self):
        self.spans, self.points, self.lines = [], [], []
        self.lock, self.sockets = threading.Lock(), []
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self.listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        # A thread that accepts would keep it open.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
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
            for resource, one in messages_of(body[5:]):
                if is_line(one):
                    self.lines.append(line_of(resource, one))
                elif is_span(one):
                    self.spans.append(span_of(one))
                else:
                    self.points += points_of(resource, one)

    def received(self):
        with self.lock:
            return list(self.spans)

    def metrics(self, after=0, node=None):
        """Points of the first whole export of a process after an instant, in nanoseconds since the Unix epoch;
        empty while there is none. `node` is the shard node; without it, the other process."""
        exports = self.exports(after, node)
        # The messages of an export may still come while no later one has begun.
        return exports[0] if len(exports) > 1 else []

    def exports(self, after=0, node=None):
        """Points of each export of a process after an instant, as far as they have come, in the order of their times."""
        with self.lock:
            own = [one for one in self.points if one.resource.get("umbo.node") == node and one.time > after]
        times = sorted({one.time for one in own})
        return [[one for one in own if one.time == time] for time in times]
