//! A process that dies without closing: its acknowledged writes are there, at once.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

use crate::rows::{clock, get, key, open, put, value, write};
use umbo_types::Version;

const FOLDER: &str = "UMBO_TEST_KILLED_FOLDER";
const ROWS: usize = 200;

/// Not a test of its own: the process that the test below starts and kills.
#[tokio::test]
async fn writer_that_dies() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let clock = clock();
    let store = open(folder.as_ref(), &clock);
    for number in 0..ROWS {
        let answers = write(&store, &clock, vec![put(key(number), &value(number), None)]).await;
        let version = answers[0].as_ref().unwrap().version;
        println!("\nwritten {number} {}", version.0);
        std::io::stdout().flush().unwrap();
    }
    std::process::abort();
}

#[tokio::test]
async fn what_a_killed_process_acknowledged_is_there() {
    let folder = tempfile::tempdir().unwrap();
    // Once it ends by itself, once it is killed half-way.
    for kill_after in [usize::MAX, ROWS / 2] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::writer_that_dies", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut acknowledged = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some(rest) = line.strip_prefix("written ") else {
                continue;
            };
            let (number, version) = rest.split_once(' ').unwrap();
            acknowledged.push((
                number.parse::<usize>().unwrap(),
                Version(version.parse().unwrap()),
            ));
            if acknowledged.len() == kill_after {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success());
        assert!(acknowledged.len() >= kill_after.min(ROWS));
        let store = open(folder.path(), &clock());
        for shard in &store.report().shards {
            assert!(shard.was_recovered && !shard.was_repaired, "{shard:?}");
        }
        for (number, version) in acknowledged {
            let row = get(&store, number).await.unwrap();
            assert!(row.version >= version);
            assert_eq!(row.value.bytes, value(number));
        }
    }
}
