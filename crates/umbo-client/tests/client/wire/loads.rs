//! Loads: what is sent of a part, and how much of it the server has.

use umbo_api::loads::{LoadSpec, LoadState};
use umbo_api::{ErrorCode, Outcome};
use umbo_client::{LoadPart, PartOffset};

use super::script::{header, lines, ok, refusal, serve, with};

const LOAD: &str = r#"{"id":"7f","namespace":"n","mode":"merge","state":"created","as_of":1,"created_at":1,
    "created_by":"c","max_reject_ratio":0,"paused":false}"#;
const PART: &str = r#"{"number":3,"bytes":5,"content_type":"text/csv","complete":true}"#;

fn part() -> LoadPart {
    LoadPart::new(3, "text/csv", Some("zstd"), "hello".into())
}

#[tokio::test]
async fn a_part_carries_its_digest_and_is_sent_again_where_the_outcome_is_unknown() {
    let unknown = refusal(ErrorCode::ShardUnavailable, Some(Outcome::Unknown));
    let (client, script) = serve([unknown, ok(PART)]).await;
    let stored = client.put_load_part("n", "7f", &part()).await.unwrap();
    assert!(stored.complete && stored.number == 3);
    assert_eq!(lines(&script), ["PUT /v1/ns/n/loads/7f/parts/3"; 2]);
    let digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    for (name, value) in [
        ("content-digest", digest),
        ("content-type", "text/csv"),
        ("content-encoding", "zstd"),
    ] {
        assert_eq!(header(&script, 1, name).as_deref(), Some(value), "{name}");
    }
    let sha256 = part().sha256();
    assert!(
        sha256.starts_with("2cf24dba5fb0a30e26e83b2ac5b9e29e"),
        "{sha256}"
    );
}

#[tokio::test]
async fn the_rest_of_a_part_follows_what_is_kept() {
    let kept = [("upload-offset", "2"), ("upload-complete", "?0")];
    let whole = [("upload-offset", "5"), ("upload-complete", "?1")];
    let (client, script) = serve([
        with(204, &kept, ""),
        with(204, &whole, ""),
        with(404, &[], ""),
    ])
    .await;
    let offset = client.load_part_offset("n", "7f", 3).await.unwrap();
    let expected = PartOffset {
        kept: 2,
        is_complete: false,
    };
    assert_eq!(offset, Some(expected));
    let offset = client
        .continue_load_part("n", "7f", &part(), 2)
        .await
        .unwrap();
    assert_eq!(
        offset,
        PartOffset {
            kept: 5,
            is_complete: true
        }
    );
    assert_eq!(client.load_part_offset("n", "7f", 4).await.unwrap(), None);
    assert_eq!(&script.lock().unwrap().seen[1].body[..], b"llo");
    assert_eq!(header(&script, 1, "upload-offset").unwrap(), "2");
    assert_eq!(header(&script, 1, "upload-complete").unwrap(), "?1");
    assert!(
        client
            .continue_load_part("n", "7f", &part(), 6)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_load_is_created_with_a_key_and_every_request_is_repeated() {
    let unknown = || refusal(ErrorCode::ShardUnavailable, Some(Outcome::Unknown));
    let spec = LoadSpec::default();
    let created = with(201, &[], LOAD);
    let answers = [unknown(), created, unknown(), ok(LOAD), ok(LOAD)];
    let (client, script) = serve(answers).await;
    assert!(client.create_load("n", &spec, "a\nb").await.is_err());
    let load = client.create_load("n", &spec, "mine").await.unwrap();
    for request in [0, 1] {
        assert_eq!(header(&script, request, "idempotency-key").unwrap(), "mine");
    }
    assert_eq!(load.state, LoadState::Created);
    client.seal_load("n", &load.id, 4).await.unwrap();
    client.abort_load("n", &load.id, true).await.unwrap();
    assert_eq!(
        lines(&script),
        [
            "POST /v1/ns/n/loads",
            "POST /v1/ns/n/loads",
            "POST /v1/ns/n/loads/7f/seal",
            "POST /v1/ns/n/loads/7f/seal",
            "POST /v1/ns/n/loads/7f/abort?dry_run=true",
        ]
    );
}

#[tokio::test]
async fn rejects_come_as_they_are_page_after_page() {
    let next = "/v1/ns/n/loads/7f/rejects?cursor=0-9&limit=1000";
    let link = format!("<{next}>; rel=\"next\"");
    let first = with(200, &[("link", link.as_str())], "{\"part\":0}\n");
    let (client, script) = serve([first, ok("{\"part\":1}\n")]).await;
    let mut rejects = client.load_rejects("n", "7f").await.unwrap();
    let mut all = Vec::new();
    while let Some(bytes) = rejects.next().await.unwrap() {
        all.extend_from_slice(&bytes);
    }
    assert_eq!(all, b"{\"part\":0}\n{\"part\":1}\n");
    let first = "GET /v1/ns/n/loads/7f/rejects".to_owned();
    assert_eq!(lines(&script), [first, format!("GET {next}")]);
}
