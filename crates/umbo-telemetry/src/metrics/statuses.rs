//! HTTP statuses as values of a label: the listed ones have series, all others share one.

/// Statuses with series.
pub(super) const STATUSES: [u16; 23] = [
    200, 201, 204, 206, 207, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 414, 419, 429, 431,
    500, 503, 504, 507,
];
/// Label value of every status that is not in [`STATUSES`].
pub(super) const STATUS_OTHER: &str = "other";

/// Index of the series of a status: its index in [`STATUSES`], or their number for any other.
pub(super) const fn status_index(status: u16) -> usize {
    if status < 600 {
        INDEX_BY_STATUS[status as usize] as usize
    } else {
        STATUSES.len()
    }
}

// One load instead of a search: statuses are looked up once per request.
static INDEX_BY_STATUS: [u8; 600] = {
    let mut table = [STATUSES.len() as u8; 600];
    let mut index = 0;
    while index < STATUSES.len() {
        table[STATUSES[index] as usize] = index as u8;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_index() {
        for status in 0..=u16::MAX {
            match STATUSES.iter().position(|&listed| listed == status) {
                Some(at) => assert_eq!(status_index(status), at),
                None => assert_eq!(status_index(status), STATUSES.len()),
            }
        }
    }
}
