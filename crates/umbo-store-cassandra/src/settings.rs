//! Where the cluster is, and how Umbo lays its rows out in it.

use std::time::Duration;

use umbo_tls::PeerTlsFiles;

use crate::probe::{ContactError, probe};

/// How a store reaches its Cassandra cluster, and the layout of its rows there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassandraSettings {
    /// Host and port of nodes; one node has to answer at the start.
    pub contact_points: Vec<String>,
    /// The data center that Umbo reads and writes in, by its name in the cluster.
    pub data_center: String,
    /// Keyspace of the tables. It is created if it does not exist.
    pub keyspace: String,
    /// Copies of each row in the data center, if the keyspace is created; at least 1.
    pub replication: u8,
    /// Name and password, or `None` for a cluster that asks for none.
    pub credentials: Option<(String, String)>,
    /// Files for TLS to the nodes, or `None` for plain connections. The port of the first contact point is then the port of
    /// all nodes.
    pub tls: Option<PeerTlsFiles>,
    /// Number of this Umbo; several may share the keyspace.
    pub instance: u32,
    /// Shards, a power of two.
    pub shards: u16,
    /// Buckets of each namespace, a power of two, and not below the number of shards.
    pub buckets: u16,
    /// How long the cluster may take for one request.
    pub request_timeout: Duration,
}

impl CassandraSettings {
    /// Asks the contact points until one answers, over TLS or without, as a start does before anything else.
    pub async fn ask(&self) -> Result<(), CassandraOpenError> {
        let asked = probe(&self.contact_points, self.tls.as_ref()).await;
        asked.map_err(|(node, error)| CassandraOpenError::Node { node, error })
    }

    /// Refuses a keyspace whose name Cassandra does not take: it stands in statements as it is.
    pub(crate) fn check_keyspace(&self) -> Result<(), CassandraOpenError> {
        let name = &self.keyspace;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if (1..=KEYSPACE_LEN_MAX).contains(&name.len()) && name.bytes().all(is_word) {
            return Ok(());
        }
        Err(CassandraOpenError::BadKeyspace(name.clone()))
    }
}

/// Longest name of a keyspace, in bytes: Cassandra makes folders of it.
const KEYSPACE_LEN_MAX: usize = 48;

impl CassandraOpenError {
    /// Returns whether nodes that are lost may be the reason.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Cluster(_) => true,
            // The node that was asked does not know any yet.
            Self::NoSuchDataCenter { known, .. } => known.is_empty(),
            Self::Node { error, .. } => {
                matches!(error, ContactError::Silent | ContactError::Unreachable(_))
            }
            Self::BadLayout { .. }
            | Self::BadKeyspace(_)
            | Self::OtherLayout { .. }
            | Self::NeedsPassword
            | Self::WrongPassword(_) => false,
        }
    }
}

/// Why a store on Cassandra cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CassandraOpenError {
    /// Shards or buckets are not as the layout needs them.
    #[error(
        "shards and buckets are powers of two, and there are at most {max} buckets and no more shards than buckets; \
         there are {shards} shards and {buckets} buckets"
    )]
    BadLayout {
        /// Shards of the settings.
        shards: u16,
        /// Buckets of the settings.
        buckets: u16,
        /// Most buckets: one for each hash slot.
        max: u16,
    },
    /// The keyspace has no name that Cassandra takes.
    #[error(
        "a keyspace has a name of 1 to {KEYSPACE_LEN_MAX} letters, digits and '_', and not '{0}'"
    )]
    BadKeyspace(String),
    /// The rows that are there are laid out otherwise.
    #[error("the keyspace '{keyspace}' has {what} {there}, and {whose} {wanted}")]
    OtherLayout {
        /// The keyspace.
        keyspace: String,
        /// What differs: shards, buckets or format.
        what: &'static str,
        /// As it is in the keyspace.
        there: i32,
        /// Whose number differs: `the settings say` or `this version reads`.
        whose: &'static str,
        /// Their number.
        wanted: i32,
    },
    /// No node of the data center is known to the driver.
    #[error("the cluster has no data center '{name}': it has {known}")]
    NoSuchDataCenter {
        /// The data center of the settings.
        name: String,
        /// The data centers of the cluster.
        known: String,
    },
    /// A contact point cannot be used, and no other one can.
    #[error("the Cassandra cluster cannot be used: {node}: {error}")]
    Node {
        /// The contact point.
        node: String,
        /// Why.
        #[source]
        error: ContactError,
    },
    /// The cluster asks for a name and a password, and the settings have none.
    #[error(
        "the Cassandra cluster asks for a password: set cassandra.user and cassandra.password_file"
    )]
    NeedsPassword,
    /// The cluster refuses the name or the password.
    #[error(
        "the Cassandra cluster refuses cassandra.user or the password in cassandra.password_file: {0}"
    )]
    WrongPassword(String),
    /// The cluster cannot be reached, or refused what a start needs.
    #[error("the Cassandra cluster cannot be used: {0}")]
    Cluster(#[source] Box<dyn std::error::Error + Send + Sync>),
}
