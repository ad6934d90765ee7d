//! Shard nodes of the lab, and dispatchers in front of them.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use umbo_routing::{ClusterMap, ClusterNode};

use super::lab::{Lab, OTHER_UMBO, OTHER_UMBO_ADMIN};
use crate::failure::Failure;
use crate::process::{self, Cores, Process};

/// Ports of a shard node.
const NODE: u16 = 18_090;
const NODE_ADMIN: u16 = 18_091;
/// Longest wait of a dispatcher for its node.
const NODES_TIMEOUT: Duration = Duration::from_secs(20);

/// A shard node with a dispatcher in front of it.
#[derive(Debug)]
pub(crate) struct Cluster {
    dispatcher: Process,
    node: Process,
    /// Ids of the processes of the dispatcher and the shard node, as a load wants them.
    pub(crate) ids: [u32; 2],
}

impl Cluster {
    /// Stops both.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        self.dispatcher.stop()?;
        self.node.stop()
    }
}

impl Lab {
    /// Starts a shard node with all shards, in a new folder, and a dispatcher in front of it.
    pub(crate) fn cluster(&mut self, data: &Path, cores: Cores) -> Result<Cluster, Failure> {
        let (map, node) = self.node(data, cores)?;
        let dispatcher = self.dispatcher(&map, (OTHER_UMBO, OTHER_UMBO_ADMIN), cores)?;
        let ids = [dispatcher.id(), node.id()];
        Ok(Cluster {
            dispatcher,
            node,
            ids,
        })
    }

    /// Starts a shard node with all shards, in a new folder, and dispatchers on these ports in front of it. Returns the
    /// node and the dispatchers.
    pub(crate) fn fleet(
        &mut self,
        data: &Path,
        ports: &[(u16, u16)],
    ) -> Result<(Process, Vec<Process>), Failure> {
        let (map, node) = self.node(data, Cores::All)?;
        let ports = ports.iter();
        let dispatchers = ports.map(|ports| self.dispatcher(&map, *ports, Cores::All));
        let dispatchers = dispatchers.collect::<Result<_, _>>()?;
        Ok((node, dispatchers))
    }

    /// Starts a shard node with all shards, in a new folder; returns the file of its map, too.
    fn node(&mut self, data: &Path, cores: Cores) -> Result<(PathBuf, Process), Failure> {
        process::check_free(&[NODE, NODE_ADMIN])?;
        let map = self.path("cluster.toml");
        let shards = std::thread::available_parallelism().map_or(4, |cores| cores.get() * 2);
        let shards = u16::try_from(shards.max(4)).unwrap_or(u16::MAX);
        let node = ClusterNode::new("a", &format!("127.0.0.1:{NODE}"));
        let first = node.and_then(|node| ClusterMap::create("bench", vec![node], shards));
        let text = first
            .map_err(|error| Failure::Contradiction(error.to_string()))?
            .to_toml();
        std::fs::write(&map, text).map_err(Failure::io(map.display().to_string()))?;
        let settings = format!(
            "[cluster]\nmap = {:?}\nnode = \"a\"\n\
             [shard]\nlisten = \"127.0.0.1:{NODE}\"\nadmin_listen = \"127.0.0.1:{NODE_ADMIN}\"\n\
             [store]\nfolder = {:?}\n",
            map.display().to_string(),
            data.display().to_string()
        );
        let mut node = self.role(&["shard".to_owned()], cores, &settings)?;
        node.wait_for(NODE)?;
        Ok((map, node))
    }

    /// Starts a dispatcher in front of the nodes of a map, and waits until it has reached them.
    fn dispatcher(
        &mut self,
        map: &Path,
        (port, admin): (u16, u16),
        cores: Cores,
    ) -> Result<Process, Failure> {
        process::check_free(&[port, admin])?;
        let settings = format!("[cluster]\nmap = {:?}\n", map.display().to_string());
        let arguments = [
            "dispatcher".to_owned(),
            format!("--listen=127.0.0.1:{port}"),
            format!("--admin-listen=127.0.0.1:{admin}"),
            format!("--token-file={}", self.token_file()),
        ];
        let mut dispatcher = self.role(&arguments, cores, &settings)?;
        dispatcher.wait_for(port)?;
        // Its port opens before it has reached a node.
        let begun = Instant::now();
        loop {
            let request = self.admin_request("GET", "shards", b"");
            match self.send_once(port, std::iter::once(request)) {
                Err(Failure::WrongAnswer(_)) if begun.elapsed() < NODES_TIMEOUT => {
                    sleep(Duration::from_millis(20));
                }
                outcome => return outcome.map(|_| dispatcher),
            }
        }
    }
}
