//! On whose behalf a question of another dispatcher is answered.

use std::future::Future;
use std::sync::Arc;

use umbo_types::Caller;

tokio::task_local! {
    /// On whose behalf the current question is answered. Nothing that comes by a port can set it.
    static ASKER: Arc<Caller>;
}

/// Returns on whose behalf a question of another dispatcher is answered; none for a request of a port.
pub(crate) fn asker() -> Option<Arc<Caller>> {
    ASKER.try_with(Arc::clone).ok()
}

/// Answers on behalf of a caller.
pub(crate) async fn as_asker<F: Future>(caller: Arc<Caller>, answering: F) -> F::Output {
    ASKER.scope(caller, answering).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_asker_is_known_only_while_its_question_is_answered() {
        assert_eq!(asker(), None);
        let caller = Arc::new(Caller::anonymous());
        let found = as_asker(Arc::clone(&caller), async { asker() }).await;
        assert_eq!(found, Some(caller));
        assert_eq!(asker(), None);
    }
}
