//! The in-memory reference passes the contract suite.

use std::sync::Arc;

use umbo_store::suite::Engine;
use umbo_store::{ManualClock, MemoryStore, Store};

struct Memory(Arc<MemoryStore>);

#[async_trait::async_trait]
impl Engine for Memory {
    async fn create(clock: Arc<ManualClock>) -> Self {
        Self(Arc::new(MemoryStore::new(3, clock).expect("three shards")))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::<MemoryStore>::clone(&self.0)
    }
}

umbo_store::contract_suite!(Memory);

mod compressed {
    umbo_store::contract_suite!(umbo_store::suite::Compressed<super::Memory>);
}

/// A case that no suite names would never run.
#[test]
fn every_case_is_named_by_a_suite() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lists = std::fs::read_to_string(source.join("suite.rs")).expect("the list of cases");
    let mut cases = 0;
    let files = ["suite", "suite/datasets"].map(|area| std::fs::read_dir(source.join(area)));
    let files = files
        .into_iter()
        .flat_map(|files| files.expect("the areas"));
    let paths = files.map(|file| file.expect("a file").path());
    for file in paths.filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(file).expect("text");
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("pub async fn ") else {
                continue;
            };
            let name = rest.split('<').next().expect("a name");
            let is_listed = lists.lines().any(|line| {
                let item = line.trim();
                item.strip_suffix([',', ';']) == Some(name)
            });
            assert!(is_listed, "{name} is in no suite");
            cases += 1;
        }
    }
    assert!(cases > 60, "only {cases} cases were found");
}
