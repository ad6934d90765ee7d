//! The node that the tests share: started by the first one, and ended with this process.

/// Returns host and port of the node.
pub(crate) async fn address() -> String {
    "127.0.0.1:9042".to_owned()
}
