//! Writes that are repeated after an attempt without an answer: what the client says of them.

use umbo_api::{ErrorCode, Outcome};
use umbo_client::{
    BatchOptions, Condition, DeadLetter, DeadLetters, Error, IncrementOptions, PutOptions,
};

use super::script::{header, lines, refusal, serve, serve_with, with};

#[tokio::test]
async fn a_server_that_recognises_the_repetition_decides_what_was_in_doubt() {
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
    let expected = (Outcome::NotApplied, Some(ErrorCode::PreconditionFailed));
    for condition in [Condition::Absent, Condition::Version(7)] {
        let written = client.put("ns", b"a", b"", "v", &put(condition)).await;
        let error = written.unwrap_err();
        assert_eq!((error.outcome(), error.code()), expected);
    }
    let removed = client.delete("ns", b"a", b"", Condition::Version(7)).await;
    assert_eq!(removed.unwrap_err().outcome(), Outcome::NotApplied);
    let absent = put(Condition::Absent);
    let written = client.put("ns", b"a", b"", "v", &absent).await;
    let error = written.unwrap_err();
    assert_eq!((error.outcome(), error.code()), expected);
    let options = BatchOptions {
        is_repeatable: true,
        ..BatchOptions::default()
    };
    for outcome in [Outcome::NotApplied, Outcome::NotApplied] {
        let line = "{\"op\":\"put\",\"pk\":\"a\",\"v\":\"v\",\"if_none_match\":\"*\"}\n";
        let written = client.batch_write("ns", line, options).await.unwrap();
        assert_eq!(written.rows[0].error.as_ref().unwrap().outcome, outcome);
    }
    assert_eq!(lines(&script).len(), 12);
    // The attempts of a call have the same key, and each call another.
    let keys: Vec<_> = (0..12)
        .map(|at| header(&script, at, "idempotency-key"))
        .collect();
    let calls = [0..2, 2..5, 5..7, 7..9, 9..11, 11..12];
    let keys = calls.map(|call| {
        let key = keys[call.start].clone().expect("it has a key");
        assert!(keys[call].iter().all(|other| other.as_ref() == Some(&key)));
        key
    });
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[at + 1..].contains(key), "{key} twice");
    }
}

#[tokio::test]
async fn what_was_not_decided_stays_in_doubt() {
    let unknown = || refusal(ErrorCode::DeadlineInStore, Some(Outcome::Unknown));
    let shed = || refusal(ErrorCode::WriteQueueFull, Some(Outcome::NotApplied));
    let counted = || with(200, &[("etag", "\"9\""), ("umbo-replayed", "?1")], "42");
    let (client, script) = serve([unknown(), shed(), shed(), unknown(), counted()]).await;
    let options = IncrementOptions::default();
    let error = client
        .increment("ns", b"a", b"", -5, &options)
        .await
        .unwrap_err();
    assert_eq!(
        (error.outcome(), error.code()),
        (Outcome::Unknown, Some(ErrorCode::WriteQueueFull))
    );
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    let counted = client
        .increment("ns", b"a", b"", -5, &options)
        .await
        .unwrap();
    assert_eq!((counted.number, counted.version), (42, 9));
    assert_eq!(header(&script, 4, "umbo-increment").as_deref(), Some("-5"));
    assert_eq!(lines(&script)[4], "PATCH /v1/ns/ns/kv/a");
}

#[tokio::test]
async fn bulk_work_has_keys_only_where_a_repetition_would_be_decided_otherwise() {
    let end = |rows| {
        with(
            200,
            &[],
            format!("{{\"end\":{{\"rows\":{rows},\"failed\":0}}}}\n"),
        )
    };
    let (client, script) = serve((0..5).map(|_| end(1))).await;
    let options = BatchOptions {
        is_minimal: true,
        is_repeatable: true,
        ..BatchOptions::default()
    };
    for line in [
        "{\"pk\":\"a\",\"v\":\"v\"}\n",
        "{\"pk\":\"a\",\"v\":\"v\",\"if_match\":7}\n",
        "{\"op\":\"inc\",\"pk\":\"a\",\"by\":1}\n",
        "{\"op\":\"\\u0069nc\",\"pk\":\"a\",\"by\":1}\n",
    ] {
        client.batch_write("ns", line, options).await.unwrap();
    }
    let plain = BatchOptions {
        is_repeatable: false,
        ..options
    };
    client
        .batch_write("ns", "{\"pk\":\"a\",\"v\":\"v\"}\n", plain)
        .await
        .unwrap();
    let has_key = |at| header(&script, at, "idempotency-key").is_some();
    assert_eq!(
        [0, 1, 2, 3, 4].map(has_key),
        [false, true, true, true, true]
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "one script of answers, and what became of each"
)]
#[tokio::test]
async fn writes_that_were_given_up_are_dead_letters_and_answers_are_none() {
    let unknown = || refusal(ErrorCode::DeadlineInStore, Some(Outcome::Unknown));
    let is_false = || refusal(ErrorCode::PreconditionFailed, Some(Outcome::NotApplied));
    let too_large = || refusal(ErrorCode::ValueTooLarge, Some(Outcome::NotApplied));
    let row = |i, status, code| {
        format!(
            "{{\"i\":{i},\"status\":{status},\"error\":{{\"type\":\"/v1/errors/{code}\",\"detail\":\"d\",\"outcome\":\"not-applied\",\"retry\":{{\"safe\":true}}}}}}\n"
        )
    };
    let batch = [
        row(1, 400, "invalid-body"),
        row(2, 412, "precondition-failed"),
        "{\"end\":{\"rows\":3,\"failed\":2}}\n".to_owned(),
    ];
    let answers = [
        is_false(),
        too_large(),
        unknown(),
        unknown(),
        unknown(),
        with(207, &[], batch.concat()),
    ];
    let folder = std::env::temp_dir().join(format!("umbo-dead-letters-{}", std::process::id()));
    let (client, _script) = serve_with(answers, |options| {
        let lost = |_: &DeadLetter, error| panic!("a letter was lost: {error}");
        options.dead_letters = Some(DeadLetters::file(&folder, lost).unwrap());
    })
    .await;
    let plain = PutOptions::default();
    let absent = PutOptions {
        condition: Condition::Absent,
        ..PutOptions::default()
    };
    assert!(client.put("ns", b"a", b"", "v", &absent).await.is_err());
    assert!(client.put("ns", b"a", b"s", "v", &plain).await.is_err());
    assert!(
        client
            .delete("ns", b"b", b"", Condition::Version(3))
            .await
            .is_err()
    );
    let options = BatchOptions {
        is_minimal: true,
        ..BatchOptions::default()
    };
    let lines = "{\"pk\":\"x\",\"v\":\"1\"}\n\nodd\n{\"pk\":\"y\",\"v\":\"1\"}\n";
    assert_eq!(
        client
            .batch_write("ns", lines, options)
            .await
            .unwrap()
            .end
            .failed,
        2
    );
    let text = std::fs::read_to_string(&folder).unwrap();
    std::fs::remove_file(&folder).unwrap();
    let letters: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seen = letters.iter().map(|letter| {
        let failed = &letter["failed"];
        let what = letter
            .get("row")
            .or(letter.get("text"))
            .unwrap()
            .to_string();
        let of = |name: &str| failed[name].as_str().unwrap().to_owned();
        (
            of("reason"),
            of("outcome"),
            failed["status"].as_u64().unwrap(),
            what,
        )
    });
    let expected = [
        (
            "refused",
            "not-applied",
            413,
            "{\"pk\":\"a\",\"sk\":\"s\",\"v\":\"v\"}",
        ),
        (
            "refused",
            "unknown",
            504,
            "{\"if_match\":3,\"op\":\"del\",\"pk\":\"b\",\"sk\":\"\"}",
        ),
        ("refused", "not-applied", 400, "\"odd\""),
    ];
    let expected = expected.map(|(reason, outcome, status, what)| {
        (
            reason.to_owned(),
            outcome.to_owned(),
            status,
            what.to_owned(),
        )
    });
    assert_eq!(seen.collect::<Vec<_>>(), expected);
}
