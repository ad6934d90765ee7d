//! Rows that a load puts with the versions of another cluster.

use umbo_types::{Clock, Key, NamespaceId, Timestamp, Version};

use super::DatasetSubject;
use crate::suite::large::{is_kept, large, pass, refer, upload};
use crate::suite::subject::{CALL, START, applied, key, put};
use crate::suite::{Engine, Restart};
use crate::{ByKey as _, Condition, Mutation, READ_GRACE, UPLOAD_IDLE, WriteRequest};

impl<E: Engine> DatasetSubject<E> {
    /// Puts a row as a load that keeps versions. Returns the version of the answer.
    async fn keep(&self, built: NamespaceId, mutation: Mutation, kept: Version) -> Version {
        let mutation = mutation.when(Condition::Unwritten(Some(kept)));
        let request = WriteRequest {
            namespace: built,
            ..self.t.request(vec![mutation])
        };
        let answer = self.t.store.write_rows(&CALL, request).await.pop();
        applied(answer.expect("one answer")).version
    }

    /// Begins to build a dataset.
    async fn building(&mut self) -> NamespaceId {
        self.build().await;
        self.group.building.expect("it is being built")
    }

    /// Writes a row as a client that knows the newest state.
    async fn write_row(&self, at: &Key) -> Version {
        let request = WriteRequest {
            namespace: self.group.live,
            epoch: self.group.epoch,
            ..self.t.request(vec![put(at, "later")])
        };
        let answer = self.t.store.write_rows(&CALL, request).await.pop();
        applied(answer.expect("one answer")).version
    }
}

/// A row gets the version that it keeps, however low, and all later versions are above it.
pub async fn a_kept_version_is_the_rows_and_later_ones_are_above<E: Engine>() {
    let mut datasets = DatasetSubject::<E>::new(3).await;
    let built = datasets.building().await;
    let before = datasets.write_row(&key("p", "written")).await;
    let latest = Version::latest_at(datasets.t.clock.wall());
    assert!(before > Version(7) && before < latest);
    let kept = [(key("p", "a"), Version(7)), (key("p", "b"), latest)];
    // The second time as another run of the load.
    for _ in 0..2 {
        for (at, version) in &kept {
            assert_eq!(datasets.keep(built, put(at, "v"), *version).await, *version);
        }
    }
    // One of the future is lowered, as a proposal is.
    let future = Version(u64::MAX);
    assert_eq!(
        datasets.keep(built, put(&key("p", "c"), "v"), future).await,
        latest
    );
    let mut last = latest;
    for round in 0..2 {
        for (at, version) in &kept {
            let row = datasets.t.get_in(built, at).await.expect("it was put");
            assert!(round > 0 || row.version == *version);
            let later = datasets.write_row(at).await;
            assert!(later > last, "{at:?}");
            last = later;
        }
        if round == 0 {
            datasets.activate(built);
            datasets.tell().await;
        }
    }
}

/// A row that a client has written stays, whatever version the load brings.
pub async fn a_written_row_stays_under_a_kept_version<E: Engine>() {
    let mut datasets = DatasetSubject::<E>::new(4).await;
    let built = datasets.building().await;
    let at = key("p", "a");
    let version = datasets.write_row(&at).await;
    let kept = Condition::Unwritten(Some(Version(version.0 + 1)));
    let request = WriteRequest {
        namespace: built,
        ..datasets.t.request(vec![put(&at, "v").when(kept)])
    };
    let answers = datasets.t.store.write_rows(&CALL, request).await;
    assert!(answers[0].is_err(), "{answers:?}");
    let row = datasets.t.get_in(built, &at).await.expect("it was written");
    assert_eq!(row.version, version);
}

/// A large value that another run of the load stores again is whole afterwards.
pub async fn a_large_value_with_a_kept_version_is_put_again<E: Engine>() {
    let mut datasets = DatasetSubject::<E>::new(5).await;
    let built = datasets.building().await;
    let at = key("p", "a");
    for id in [1, 2] {
        upload(&datasets.t, &at, id).await;
        let version = datasets
            .keep(built, refer(&at, &large(id)), Version(7))
            .await;
        assert_eq!(version, Version(7));
    }
    pass(&datasets.t, &at, UPLOAD_IDLE + READ_GRACE).await;
    let row = datasets.t.get_in(built, &at).await.expect("it was put");
    let stored = row.value.large().expect("it is large");
    let id = stored.upload.0[0];
    assert!(is_kept(&datasets.t, &at, id).await, "{id}");
}

/// After a restart, versions go on above those that were kept.
pub async fn kept_versions_outlive_a_restart<E: Restart>() {
    let mut datasets = DatasetSubject::<E>::new(6).await;
    let built = datasets.building().await;
    let (at, latest) = (key("p", "a"), Version::latest_at(START));
    assert_eq!(datasets.keep(built, put(&at, "v"), latest).await, latest);
    datasets.activate(built);
    datasets.tell().await;
    datasets.t.clock.set_wall(Timestamp(START.0 - 1_000_000));
    datasets.t = datasets.t.restart().await;
    let row = datasets.t.get_in(built, &at).await.expect("it was put");
    assert_eq!(row.version, latest);
    assert!(datasets.write_row(&at).await > latest);
}
