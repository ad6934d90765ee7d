//! Counters of a running server, by its metrics.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::requests::http;
use super::response::{Head, body_len};
use crate::failure::Failure;

/// Longest wait for the metrics of a server that is busy.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the sum of all series whose name and labels begin so.
pub(crate) fn scrape(port: u16, fields: &str, series: &str) -> Result<f64, Failure> {
    Ok(sum(&get(port, "/metrics", fields)?, series))
}

/// Returns the same of a server that has its data port only.
pub(crate) fn scrape_data_port(port: u16, series: &str) -> Result<f64, Failure> {
    Ok(sum(&get(port, "/admin/v1/metrics", "")?, series))
}

fn sum(text: &str, series: &str) -> f64 {
    let samples = text.lines().filter(|line| line.starts_with(series));
    let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Returns the body of what a server answers to a `GET`, which must succeed.
pub(crate) fn get(port: u16, target: &str, fields: &str) -> Result<String, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut socket =
        TcpStream::connect_timeout(&address, TIMEOUT).map_err(Failure::io("cannot connect"))?;
    socket
        .set_read_timeout(Some(TIMEOUT))
        .map_err(Failure::io("a timeout"))?;
    socket
        .write_all(&http("GET", target, fields, b""))
        .map_err(Failure::io("cannot send"))?;
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = socket
            .read(&mut chunk)
            .map_err(Failure::io("cannot receive"))?;
        bytes.extend_from_slice(&chunk[..read]);
        if let Some(head) = Head::parse(&bytes)
            && let Some(len) = body_len(&head, &bytes)
        {
            let body = &bytes[bytes.len() - len..];
            let text = String::from_utf8_lossy(body).into_owned();
            return if head.status == 200 {
                Ok(text)
            } else {
                let status = head.status;
                Err(Failure::WrongAnswer(format!("{target}: {status} {text}")))
            };
        }
        if read == 0 {
            return Err(Failure::WrongAnswer(format!("{target}: half an answer")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_of_the_series_that_begin_so() {
        let text = "# HELP x_count y\nx_count{operation=\"get\",shard=\"0\"} 3\n\
                    x_count{operation=\"get\",shard=\"1\"} 4\nx_count{operation=\"put\"} 8\n";
        assert!((sum(text, "x_count{operation=\"get\"") - 7.0).abs() < 1e-9);
        assert!((sum(text, "x_count") - 15.0).abs() < 1e-9);
    }
}
