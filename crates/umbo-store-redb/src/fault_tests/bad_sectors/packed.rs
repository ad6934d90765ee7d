//! New rows that are put together beside a page that cannot be read.

use umbo_store::{Atomicity, Mutation};
use umbo_types::Key;

use super::{assert_unreadable, break_text, cold, filled, name, put, text, try_get, write};

/// New rows at the end of a page whose next one cannot be read: only that they are packed needs it.
#[tokio::test]
async fn a_bad_page_after_packed_rows_hurts_none_of_them() {
    for bad in (2_000..3_000).step_by(10) {
        let mut rig = filled().await;
        break_text(&rig, &text(bad));
        if try_get(&rig, bad - 1).await.is_err() {
            continue;
        }
        // The first row of its page. What was read of it is forgotten.
        rig.files.heal_sectors();
        rig.reopen(cold).await;
        break_text(&rig, &text(bad));
        let name_of = |number| format!("{}-{number:02}", name(bad - 1));
        let rows = (0..40).map(|number| Mutation {
            key: Key::new(name_of(number), "").unwrap(),
            ..put(bad, &text(bad - 1), None)
        });
        let reads = rig.files.bad_sector_reads();
        let openings = rig.files.openings();
        for answer in write(&rig, rows.collect(), Atomicity::None).await {
            answer.unwrap();
        }
        assert!(rig.files.bad_sector_reads() > reads, "no page was needed");
        assert_eq!(rig.files.openings(), openings);
        for number in 0..40 {
            let found = rig.get(&name_of(number)).await;
            assert_eq!(found.as_deref(), Some(&text(bad - 1)[..]));
        }
        assert_unreadable(&try_get(&rig, bad).await.unwrap_err());
        return;
    }
    panic!("no page begins with such a row");
}
