//! The checks of loads: datasets that are uploaded and applied by the servers, and compression at rest.
//!
//! Servers are the `umbo` binary beside this program, as processes of their own on loopback; the uploader is its
//! command line.

mod beside;
mod build;
mod compression;
mod kills;
mod relay;
mod rows;
mod swaps;
mod tier;

use super::plan::Check;

pub(super) const CHECKS: [Check; 5] = [
    Check {
        name: "build",
        about: "10 M rows of 256 bytes: rows a second of a bare redb load 0.8, sorted 150,000, unsorted 100,000; \
                memory 256 MiB; files 1.25 of the raw bytes",
        run: build::build,
    },
    Check {
        name: "beside",
        about: "p99 of gets while a load is built, of while it is paused, pinned cores: 1.2",
        run: beside::beside,
    },
    Check {
        name: "compression",
        about: "the cities by 64: bytes of plain, of compressed 2 (the sample: 1.6); processor time of a get, of plain 1.15",
        run: compression::compression,
    },
    Check {
        name: "kills",
        about: "200 kills of uploader, dispatchers and node: loads that end otherwise 0, parts sent again 1, left over 0",
        run: kills::kills,
    },
    Check {
        name: "swaps",
        about: "1,000 swaps and rollbacks beside writes: the longest write 50 ms more, errors 0",
        run: swaps::swaps,
    },
];
