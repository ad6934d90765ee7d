//! Copies read back as what they were made of, and nothing else reads as a copy.

use proptest::prelude::*;
use umbo_store::RecordsCopy;
use umbo_types::NamespaceId;

use super::*;

fn set() -> impl Strategy<Value = RecordSet> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    let name = "[a-z0-9/._-]{0,8}";
    let content = prop::collection::vec(any::<u8>(), 0..20);
    let row = (kind, name, content);
    let rows = prop::collection::vec(row, 0..12);
    let fences = prop::collection::btree_set(1_u32.., 0..5);
    (rows, fences, any::<u64>(), any::<u32>()).prop_map(|(rows, fences, number, last)| {
        let rows = rows.into_iter().filter(|(kind, ..)| *kind != Kind::Fence);
        let mut edits = rows.fold(Edits::none(), |edits, (kind, name, content)| {
            // A copy tells the datasets of namespaces, so those are read.
            let content = match kind {
                Kind::Namespace => namespace(&content),
                _ => content,
            };
            edits.put(kind, &name, content)
        });
        for id in fences {
            edits = edits.fence(NamespaceId(id));
        }
        let set = RecordSet {
            revision: RecordsRevision {
                epoch: 1,
                number: number >> 1,
            },
            ..RecordSet::default()
        };
        set.changed(&edits.with_last_namespace(last))
    })
}

/// Returns the record of a namespace whose id is made of some bytes.
fn namespace(bytes: &[u8]) -> Vec<u8> {
    let id = bytes
        .iter()
        .fold(1_u32, |id, &byte| id.wrapping_mul(31) ^ u32::from(byte))
        .max(1);
    format!(r#"{{"id":{id},"created_at":7,"durability":"sync","state":"live"}}"#).into_bytes()
}

proptest! {
    #[test]
    fn a_copy_reads_back(set in set()) {
        let copy = set.to_copy().unwrap();
        prop_assert!(copy.fenced.is_sorted_by(|one, next| one.last < next.first));
        prop_assert_eq!(RecordSet::from_copy(&copy).unwrap(), set);
    }

    #[test]
    fn what_is_cut_or_longer_is_no_copy(set in set(), at in any::<prop::sample::Index>()) {
        let copy = set.to_copy().unwrap();
        let cut = at.index(copy.content.len());
        let shorter = RecordsCopy { content: copy.content.slice(..cut), ..copy.clone() };
        prop_assert!(RecordSet::from_copy(&shorter).is_err());
        let longer = [&copy.content[..], b"x"].concat();
        let longer = RecordsCopy { content: longer.into(), ..copy };
        prop_assert!(RecordSet::from_copy(&longer).is_err());
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_read(content in prop::collection::vec(any::<u8>(), 0..64)) {
        let copy = RecordsCopy { content: content.into(), ..RecordsCopy::default() };
        drop(RecordSet::from_copy(&copy));
    }
}

#[test]
fn what_this_version_does_not_know_is_unreadable_and_not_absent() {
    let set = RecordSet::default().changed(&Edits::none().put(Kind::Token, "a", "x"));
    let copy = set.to_copy().unwrap();
    let replaced = |from: &[u8], to: &[u8]| {
        let at = copy
            .content
            .windows(from.len())
            .position(|it| it == from)
            .unwrap();
        let mut content = copy.content.to_vec();
        content[at..at + from.len()].copy_from_slice(to);
        RecordsCopy {
            content: content.into(),
            ..copy.clone()
        }
    };
    let unknown = RecordSet::from_copy(&replaced(b"token/a", b"totem/a")).unwrap_err();
    assert_eq!(unknown.record, "totem/a");
    let newer = RecordSet::from_copy(&replaced(&[1, 0, 0], &[2, 0, 0])).unwrap_err();
    assert!(newer.reason.contains("format 2"), "{newer}");
    let fenced = vec![NamespaceId(7).into()];
    let other = RecordsCopy {
        fenced,
        ..copy.clone()
    };
    assert!(RecordSet::from_copy(&other).is_err());
}
