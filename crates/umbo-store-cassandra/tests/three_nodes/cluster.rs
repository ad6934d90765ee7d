//! Nodes that are killed, started and stopped.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::node::{Node, Ports};

/// A running cluster.
pub(crate) struct Cluster {
    ports: Ports,
    folders: Vec<TempDir>,
    nodes: Vec<Option<Node>>,
}

impl Cluster {
    /// Starts some nodes, and waits until they serve.
    pub(crate) fn start(nodes: usize) -> Self {
        let folder = |_| TempDir::new().expect("there is room for a folder");
        let mut cluster = Self {
            ports: Ports::free(),
            folders: (0..nodes).map(folder).collect(),
            nodes: (0..nodes).map(|_| None).collect(),
        };
        // A node that finds no other one gives up.
        for number in 0..nodes {
            cluster.begin(number);
            cluster.wait(number);
        }
        for number in 0..nodes {
            cluster.wait(number);
        }
        cluster
    }

    /// Returns the addresses of all nodes.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.nodes.iter().flatten().map(Node::address).collect()
    }

    /// Kills a node (kill -9).
    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes[number] = None;
    }

    /// Starts a node on its files.
    pub(crate) fn begin(&mut self, number: usize) {
        let place = (number as u8 + 1, self.nodes.len() as u8);
        let node = Node::begin(place, self.ports, self.folder(number));
        self.nodes[number] = Some(node);
    }

    /// Waits until a node serves, and has found all others that run.
    pub(crate) fn wait(&mut self, number: usize) {
        let running = (1..).zip(&self.nodes).filter(|(_, node)| node.is_some());
        let mut others: Vec<u8> = running.map(|(place, _)| place).collect();
        others.retain(|&place| usize::from(place) != number + 1);
        let node = self.nodes[number].as_mut().expect("it has begun");
        node.wait(self.folders[number].path(), &others);
    }

    /// Lets a node stand still (SIGSTOP), with its connections open.
    pub(crate) fn stop(&self, number: usize) {
        self.signal(number, "-STOP");
    }

    /// Lets a stopped node go on.
    pub(crate) fn go_on(&self, number: usize) {
        self.signal(number, "-CONT");
    }

    fn signal(&self, number: usize, signal: &str) {
        let pid = std::fs::read_to_string(self.folder(number).join("pid")).expect("it runs");
        let sent = Command::new("kill").args([signal, pid.trim()]).status();
        assert!(sent.expect("there is kill").success(), "{signal} {pid}");
    }

    fn folder(&self, number: usize) -> &Path {
        self.folders[number].path()
    }
}
