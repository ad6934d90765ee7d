//! The smallest programs in which everything can happen, to be walked through.

use super::program::{Ending, Program, Reader};
use super::world::Place;

const READER: Reader = Reader {
    place: Place::One,
    is_hot: false,
    pauses: 1,
    ending: Ending::Answer,
    patience: None,
    is_direct: false,
};

/// Whose read fails.
const FAILING: Reader = Reader {
    ending: Ending::Error,
    ..READER
};

const PANICKING: Reader = Reader {
    ending: Ending::Panic,
    ..READER
};

/// Who leaves after the first look.
const LEAVING: Reader = Reader {
    patience: Some(0),
    ..READER
};

const HOT: Reader = Reader {
    is_hot: true,
    pauses: 0,
    ..READER
};

const DIRECT: Reader = Reader {
    pauses: 0,
    is_direct: true,
    ..READER
};

fn clients<const N: usize>(readers: [Reader; N]) -> Program {
    Program {
        clients: readers.into_iter().map(|reader| vec![reader]).collect(),
        ..Program::default()
    }
}

fn at_once(reader: Reader) -> Reader {
    Reader {
        pauses: 0,
        ..reader
    }
}

/// Returns the programs with their names.
pub(crate) fn cases() -> Vec<(&'static str, Program)> {
    let mut cases = of_readers();
    cases.extend(with_a_writer());
    cases
}

fn of_readers() -> Vec<(&'static str, Program)> {
    vec![
        ("leader and follower", clients([READER, READER])),
        (
            "two leaders at once",
            clients([at_once(READER), at_once(READER)]),
        ),
        ("the leader fails", clients([FAILING, READER])),
        (
            "the leader fails at once",
            clients([at_once(FAILING), at_once(READER)]),
        ),
        ("both fail", clients([FAILING, FAILING])),
        ("the leader panics", clients([PANICKING, READER])),
        (
            "the leader panics at once",
            clients([at_once(PANICKING), at_once(READER)]),
        ),
        ("one of two leaves", clients([LEAVING, READER])),
        (
            "the leader fails, the follower leaves",
            clients([at_once(FAILING), LEAVING]),
        ),
        (
            "the task of the leader is ended",
            Program {
                aborts: vec![1],
                ..clients([READER, READER])
            },
        ),
        ("a direct read beside a leader", clients([DIRECT, READER])),
        (
            "the leader fails before two followers, one of whom leaves",
            clients([at_once(FAILING), at_once(LEAVING), at_once(READER)]),
        ),
    ]
}

fn with_a_writer() -> Vec<(&'static str, Program)> {
    let write = vec![(Place::One, true)];
    vec![
        (
            "a reader meets a writer",
            Program {
                writes: write.clone(),
                ..clients([READER])
            },
        ),
        (
            "a reader of a range meets the writer of a row",
            Program {
                writes: write.clone(),
                ..clients([Reader {
                    place: Place::Both,
                    ..READER
                }])
            },
        ),
        (
            "a reader of a row meets the writer of a range",
            Program {
                writes: vec![(Place::Both, true)],
                ..clients([READER])
            },
        ),
        (
            "a hot key is read, and read again, while it is written",
            Program {
                clients: vec![vec![HOT, HOT]],
                writes: write.clone(),
                ..Program::default()
            },
        ),
        (
            "two direct reads beside a writer",
            Program {
                clients: vec![vec![DIRECT, DIRECT]],
                writes: write.clone(),
                ..Program::default()
            },
        ),
        (
            "leader, follower and writer, all at once",
            Program {
                writes: write,
                ..clients([at_once(READER), at_once(READER)])
            },
        ),
    ]
}
