//! A node of a cluster: its name, and its address for other processes.
//!
//! Owns the syntax of names and addresses. Resolves nothing.

use std::net::Ipv6Addr;

use super::error::ClusterMapError;

/// Longest name of a cluster or node, in bytes.
const NAME_LEN_MAX: usize = 64;
/// Longest host name, in bytes (RFC 1035, section 2.3.4).
const HOST_LEN_MAX: usize = 253;
/// Longest part of a host name between two points, in bytes.
const LABEL_LEN_MAX: usize = 63;

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    name: String,
    address: String,
    port: u16,
}

impl ClusterNode {
    /// Checks a name, `[a-z0-9][a-z0-9._-]{0,63}`, and an address, `host:port`: a host name, an
    /// IPv4 address or an IPv6 address in brackets, and a port that is not 0.
    pub fn new(name: &str, address: &str) -> Result<Self, ClusterMapError> {
        check_name("node", name)?;
        let bad = |reason| ClusterMapError::BadAddress {
            node: name.to_owned(),
            address: address.to_owned(),
            reason,
        };
        if address.is_empty() {
            return Err(ClusterMapError::NoAddress(name.to_owned()));
        }
        let (host, port) = address.rsplit_once(':').ok_or_else(|| bad("no port"))?;
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|&port| is_number && port != 0);
        let port = port.ok_or_else(|| bad("the port is not a number from 1 to 65535"))?;
        if !is_host(host) {
            return Err(bad("the host is neither a name nor an address"));
        }
        Ok(Self {
            name: name.to_owned(),
            address: address.to_owned(),
            port,
        })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address, `host:port`, as it was written.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the host of the address; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        let (host, _) = self.address.rsplit_once(':').unwrap_or((&self.address, ""));
        in_brackets(host).unwrap_or(host)
    }

    /// Returns the port of the address.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Checks the name of a cluster or node.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), ClusterMapError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_allowed = |byte| is_plain(byte) || matches!(byte, b'.' | b'_' | b'-');
    let is_name = name.len() <= NAME_LEN_MAX
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(is_allowed);
    if is_name {
        return Ok(());
    }
    Err(ClusterMapError::BadName {
        what,
        name: name.to_owned(),
    })
}

fn in_brackets(host: &str) -> Option<&str> {
    host.strip_prefix('[')?.strip_suffix(']')
}

fn is_host(host: &str) -> bool {
    if let Some(address) = in_brackets(host) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| {
        (1..=LABEL_LEN_MAX).contains(&label.len())
            && label.bytes().all(is_allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= HOST_LEN_MAX && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (address, host, port) in [
            ("shard-a:7411", "shard-a", 7_411),
            ("shard-0.shards.umbo.svc:1", "shard-0.shards.umbo.svc", 1),
            ("127.0.0.1:65535", "127.0.0.1", 65_535),
            ("[::1]:7411", "::1", 7_411),
        ] {
            let node = ClusterNode::new("a", address).unwrap();
            assert_eq!((node.host(), node.port()), (host, port));
            assert_eq!(node.address(), address);
        }
    }

    #[test]
    fn anything_else_is_no_address() {
        for address in [
            "shard-a",
            "shard-a:",
            "shard-a:0",
            "shard-a:+1",
            "shard-a:65536",
            ":7411",
            "::1:7411",
            "[::1:7411",
            "[shard]:7411",
            "http://shard-a:7411",
            "shard a:7411",
            "-a:7411",
            "a..b:7411",
        ] {
            let refused = ClusterNode::new("a", address).unwrap_err();
            let is_named =
                matches!(&refused, ClusterMapError::BadAddress { node, .. } if node == "a");
            assert!(is_named, "{address}: {refused}");
        }
        assert_eq!(
            ClusterNode::new("a", ""),
            Err(ClusterMapError::NoAddress("a".to_owned()))
        );
    }

    #[test]
    fn a_name_is_that_of_a_namespace() {
        for name in ["", "A", "-a", "a b", "ä", &"a".repeat(65)] {
            let refused = ClusterNode::new(name, "a:1").unwrap_err();
            assert!(matches!(refused, ClusterMapError::BadName { .. }), "{name}");
        }
        ClusterNode::new(&"a".repeat(64), "a:1").unwrap();
        ClusterNode::new("0.shards_eu-1", "a:1").unwrap();
    }
}
