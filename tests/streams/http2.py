"""The least of HTTP/2 that a hostile client needs: frames by hand, and windows as it likes."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 7, 8
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(window):
    """Opens the connection: every stream may send so many bytes at first."""
    return PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window))


def field(name, value):
    """A literal header field that is not indexed, without Huffman coding."""
    return b"\0" + bytes([len(name)]) + name.encode() + length(len(value)) + value.encode()


def length(number):
    """An integer with a prefix of seven bits."""
    if number < 127:
        return bytes([number])
    octets, number = [127], number - 127
    while number >= 128:
        octets.append(number % 128 + 128)
        number //= 128
    return bytes([*octets, number])


def request(stream, method, path, body=None, fields=None):
    names = {":method": method, ":scheme": "http", ":authority": "a", ":path": path} | (fields or {})
    block = b"".join(field(name, value) for name, value in names.items())
    if body is None:
        return frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body)
