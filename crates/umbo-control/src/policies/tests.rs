//! What is shown of a policy is of one version.

use std::sync::atomic::{AtomicBool, Ordering};

use umbo_quota::{LimiterSettings, PolicySet, Weights};
use umbo_store::ManualClock;
use umbo_types::Timestamp;

use super::*;

/// Changes while others look.
const CHANGES: u64 = 2_000;

fn spec(burst: u64) -> PolicySpec {
    let json = format!(
        r#"{{"name": "reads", "per": ["caller"], "unit": "requests", "rate": 1, "burst": {burst}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

fn stored(burst: u64) -> StoredPolicies {
    let policy = Policy::parse(&spec(burst), PolicySource::Stored).unwrap();
    let edits = Edits::none().put(Kind::Quota, "reads", effective::content_of(&policy));
    StoredPolicies::read(&RecordSet::default().changed(&edits)).unwrap()
}

#[test]
fn a_policy_is_shown_with_its_own_version_while_it_changes() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_millis(1)));
    let settings = LimiterSettings {
        weights: Weights::default(),
        accounts_max: 16,
        buckets_max: 16,
        shards: 1,
        seed: 7,
    };
    let limiter = Limiter::new(settings, PolicySet::built_in(), clock.monotonic());
    let policies = Policies::new(Arc::new(limiter), clock, FilePolicies::default());
    policies.take_up(stored(1));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let look = || {
            while !is_over.load(Ordering::Relaxed) {
                let listed = policies.list().policies;
                let listed = listed.into_iter().find(|info| info.policy.name == "reads");
                for info in [policies.describe("reads").unwrap(), listed.unwrap()] {
                    let policy = Policy::parse(&info.policy, PolicySource::Stored).unwrap();
                    let of_shown = version_of(&effective::content_of(&policy));
                    assert_eq!(info.version, Some(of_shown.0), "{:?}", info.policy);
                }
            }
        };
        let looking = scope.spawn(look);
        for burst in 2..CHANGES {
            policies.take_up(stored(burst));
            if looking.is_finished() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        looking.join().unwrap();
    });
}
