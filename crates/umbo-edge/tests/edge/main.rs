//! The edge from outside: bytes over loopback sockets, HTTP/2 and TLS clients.
#![cfg(test)]

mod doors;
mod drain;
mod http1;
mod http2;
mod support;
mod tls;
