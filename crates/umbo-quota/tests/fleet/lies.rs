//! Messages of a peer that lies: fields of the form of `fleet/message.rs` with the worst values, and garbage.

use umbo_quota::OwnerRow;

use crate::support::Random;

/// Returns a number that breaks sums.
fn worst(random: &mut Random) -> u64 {
    let near = random.next();
    random.pick(&[
        0,
        1,
        2,
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
        (1 << 63) - 1,
        1 << 60,
        1 << 32,
        1_000_000,
        near,
        near >> 32,
    ])
}

struct Body(Vec<u8>);

impl Body {
    fn put(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn list(&mut self, random: &mut Random, ids: &[u64]) {
        let len = random.below(4);
        self.put(len);
        for _ in 0..len {
            let any = random.next();
            let id = random.pick(ids);
            self.put(random.pick(&[id, id, any]));
        }
    }

    /// Cuts some bodies off, and makes some longer or wrong.
    fn end(mut self, random: &mut Random) -> Vec<u8> {
        let len = self.0.len() as u64;
        match random.below(10) {
            0 => self.0.truncate(random.below(len + 1) as usize),
            1 => self.0.push(0),
            2 => self.0[random.below(len) as usize] ^= 1 << random.below(8),
            _ => {}
        }
        self.0
    }
}

/// Returns the name of the first counter of a report without silent owners.
pub(crate) fn named(report: &[u8]) -> Option<[u8; 16]> {
    report.get(41..57)?.try_into().ok()
}

pub(crate) fn report(
    random: &mut Random,
    ids: &[u64],
    row: &OwnerRow,
    named: &[[u8; 16]],
) -> Vec<u8> {
    let mut body = Body(vec![1]);
    body.put(random.pick(ids));
    body.put(worst(random));
    let revision = worst(random);
    body.put(random.pick(&[row.revision, row.revision, revision]));
    body.list(random, ids);
    let counters = random.below(4);
    body.put(counters);
    for _ in 0..counters {
        let other = [random.below(3) as u8; 16];
        let at = random.below(named.len() as u64 + 1) as usize;
        body.0.extend_from_slice(named.get(at).unwrap_or(&other));
        body.put(random.below(2));
        for _ in 0..8 {
            body.put(worst(random));
        }
    }
    body.end(random)
}

pub(crate) fn reply(random: &mut Random, ids: &[u64], row: &OwnerRow) -> Vec<u8> {
    let mut body = Body(vec![1]);
    body.put(random.below(2_000));
    let revision = worst(random);
    body.put(random.pick(&[0, row.revision, revision]));
    body.list(random, ids);
    let counters = random.below(4);
    body.put(counters);
    for _ in 0..4 * counters {
        body.put(worst(random));
    }
    body.end(random)
}
