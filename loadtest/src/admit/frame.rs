//! Messages over a connection: their length in four bytes, and their bytes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// Longest wait for an answer. An owner that takes longer is silent.
const TIMEOUT: Duration = Duration::from_millis(80);

pub(crate) fn write(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    // In one packet.
    let mut framed = (body.len() as u32).to_le_bytes().to_vec();
    framed.extend_from_slice(body);
    stream.write_all(&framed)
}

pub(crate) fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut body = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// Sends a message on a connection, which is made if it is not there and given up if it fails; returns the answer.
pub(crate) fn ask(to: &mut Option<TcpStream>, port: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = match to.take() {
        Some(stream) => stream,
        None => connect(port)?,
    };
    write(&mut stream, body)?;
    let answer = read(&mut stream)?;
    *to = Some(stream);
    Ok(answer)
}

pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Answers messages on a port, with a thread for each connection, until the process ends. Returns the port: port 0 is any
/// free one.
pub(crate) fn serve(
    port: u16,
    answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
) -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = listener.map_err(Failure::io(format!("cannot listen on {port}")))?;
    let bound = listener.local_addr().map_err(Failure::io("socket"))?;
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), answer) = (stream, Arc::clone(&answer)) else {
                continue;
            };
            // The other end may be gone: then its thread ends.
            let mut answers = move || -> io::Result<()> {
                stream.set_nodelay(true)?;
                loop {
                    let body = read(&mut stream)?;
                    write(&mut stream, &answer(&body))?;
                }
            };
            thread::spawn(move || drop(answers()));
        }
    });
    Ok(bound.port())
}
