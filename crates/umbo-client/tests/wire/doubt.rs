//! Writes that are repeated after an attempt without an answer: what the client says of them.

use umbo_api::{ErrorCode, Outcome};
use umbo_client::{BatchOptions, Condition, Error, PutOptions};

use crate::script::{lines, refusal, serve, with};

#[tokio::test]
async fn a_condition_that_is_false_after_an_attempt_in_doubt_says_nothing_of_the_write() {
    let unknown = || refusal(ErrorCode::DeadlineInStore, Some(Outcome::Unknown));
    let is_false = || refusal(ErrorCode::PreconditionFailed, Some(Outcome::NotApplied));
    let shed = || refusal(ErrorCode::WriteQueueFull, Some(Outcome::NotApplied));
    let row = r#"{"i":0,"status":412,"error":{"type":"/v1/errors/precondition-failed","detail":"d","outcome":"not-applied","retry":{"safe":true}}}"#;
    let batch = || {
        with(
            207,
            &[],
            format!("{row}\n{{\"end\":{{\"rows\":1,\"failed\":1}}}}\n"),
        )
    };
    let (client, script) = serve([
        unknown(),
        is_false(),
        unknown(),
        shed(),
        is_false(),
        unknown(),
        is_false(),
        // Without a doubt before it, it is what it says.
        shed(),
        is_false(),
        unknown(),
        batch(),
        batch(),
    ])
    .await;
    let put = |condition| PutOptions {
        condition,
        ..PutOptions::default()
    };
    for condition in [Condition::Absent, Condition::Version(7)] {
        let written = client.put("ns", b"a", b"", "v", &put(condition)).await;
        let error = written.unwrap_err();
        assert_eq!((error.outcome(), error.code()), (Outcome::Unknown, None));
        assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    }
    let removed = client.delete("ns", b"a", b"", Condition::Version(7)).await;
    assert_eq!(removed.unwrap_err().outcome(), Outcome::Unknown);
    let absent = put(Condition::Absent);
    let written = client.put("ns", b"a", b"", "v", &absent).await;
    let error = written.unwrap_err();
    let expected = (Outcome::NotApplied, Some(ErrorCode::PreconditionFailed));
    assert_eq!((error.outcome(), error.code()), expected);
    let options = BatchOptions {
        is_repeatable: true,
        ..BatchOptions::default()
    };
    for outcome in [Outcome::Unknown, Outcome::NotApplied] {
        let line = "{\"op\":\"put\",\"pk\":\"a\",\"v\":\"v\",\"if_none_match\":\"*\"}\n";
        let written = client.batch_write("ns", line, options).await.unwrap();
        assert_eq!(written.rows[0].error.as_ref().unwrap().outcome, outcome);
    }
    assert_eq!(lines(&script).len(), 12);
}
