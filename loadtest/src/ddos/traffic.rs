//! What is asked: by the attack, and by those who are not part of it.

use std::path::PathBuf;

use crate::bench::lab::Lab;
use crate::dataset;
use crate::failure::Failure;
use crate::load::requests::Prepared;
use crate::random::Random;

/// Requests of normal traffic that differ.
const NORMAL: usize = 50_000;
/// Requests of the attack that differ.
const ATTACK: usize = 20_000;
/// Rows of a range.
const RANGE_ROWS: u64 = 20;

/// What the attack reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// So many keys.
    Keys(u64),
    /// So many keys that nothing is under.
    Absent(u64),
    /// All keys alike.
    Spread,
}

/// Who asks for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    /// Of everything that is random.
    pub(crate) seed: u64,
    /// What the attack reads.
    pub(crate) target: Target,
    /// Connections of the attack.
    pub(crate) connections: u32,
    /// Gets of other keys a second, each of another key.
    pub(crate) gets_rate: f64,
    /// Puts and ranges a second.
    pub(crate) others_rate: f64,
}

/// Files of prepared requests.
#[derive(Debug)]
pub(crate) struct Files {
    pub(super) attack: PathBuf,
    pub(super) gets: PathBuf,
    pub(super) others: PathBuf,
}

impl Traffic {
    /// Prepares all requests.
    pub(super) fn prepare(&self, lab: &mut Lab) -> Result<Files, Failure> {
        let mut random = Random::seeded(self.seed);
        let mut rows: Vec<u64> = (0..lab.rows).collect();
        random.shuffle(&mut rows);
        // No other client reads the attacked keys.
        let attacked = match self.target {
            Target::Spread => 0,
            Target::Keys(keys) | Target::Absent(keys) => keys as usize,
        };
        let (attacked, normal) = rows.split_at(attacked);
        let attack = match self.target {
            Target::Spread => write(lab, "attack", ATTACK, |lab, _| {
                lab.request("GET", &dataset::resource(random.below(lab.rows)), "", b"")
            })?,
            Target::Keys(keys) | Target::Absent(keys) => {
                let is_absent = self.target == Target::Absent(keys);
                write(lab, "attack", ATTACK, |lab, _| {
                    let mut resource = dataset::resource(attacked[random.below(keys) as usize]);
                    if is_absent {
                        resource.push_str("-absent");
                    }
                    lab.request("GET", &resource, "", b"")
                })?
            }
        };
        let gets = write(lab, "gets", NORMAL.min(normal.len()), |lab, at| {
            lab.request("GET", &dataset::resource(normal[at]), "", b"")
        })?;
        let others = write(lab, "others", NORMAL / 10, |lab, at| {
            if at % 2 == 0 {
                let partition = dataset::partition(random.below(lab.rows));
                let resource = format!("range/{partition}?limit={RANGE_ROWS}");
                return lab.request("GET", &resource, "", b"");
            }
            // Rows of its own, so that no read of another one depends on it.
            let resource = format!("kv/written/s{at:06}");
            let value = dataset::value(at as u64);
            lab.request("PUT", &resource, "", value.as_bytes())
        })?;
        Ok(Files {
            attack,
            gets,
            others,
        })
    }
}

fn write(
    lab: &mut Lab,
    name: &str,
    count: usize,
    mut make: impl FnMut(&Lab, usize) -> Vec<u8>,
) -> Result<PathBuf, Failure> {
    let path = lab.path(name);
    Prepared::write(&path, (0..count).map(|at| make(lab, at)))?;
    Ok(path)
}
