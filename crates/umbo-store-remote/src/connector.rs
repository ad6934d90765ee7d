//! Transport to a node: TCP, or a substitute in a test or a simulation.

use std::fmt;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection as a byte stream.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Makes connections to nodes.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    /// Connects to a host. The future is dropped after `connect_timeout`.
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Io>>;
}

/// The connector of a [`crate::RemoteStore`].
#[derive(Debug, Clone, Default)]
pub enum Transport {
    /// TCP. The name is resolved each time, so that a node may come back with another address.
    #[default]
    Tcp,
    /// A substitute.
    Other(Arc<dyn Connector>),
}

impl Transport {
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Io>> {
        match self {
            Self::Tcp => {
                let stream = TcpStream::connect((host, port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Other(connector) => connector.connect(host, port).await,
        }
    }
}

impl PartialEq for Transport {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp, Self::Tcp) => true,
            (Self::Other(one), Self::Other(two)) => Arc::ptr_eq(one, two),
            (Self::Tcp, Self::Other(_)) | (Self::Other(_), Self::Tcp) => false,
        }
    }
}

impl Eq for Transport {}
