//! Defaults of the memory settings where a control group limits the memory of the process, as in a container.
//!
//! The kernel kills a process that reaches the limit, and the usual defaults together exceed a small one. What an
//! operator sets stays as it is.

use std::fs;

use super::layer::{Layers, SettingOrigin};
use super::unit::ByteCount;

/// The limit of the own control group as a container sees it: version 2, then version 1.
const FILES: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];
/// Part of the limit by setting, as its divisor, and the smallest value that the setting can have in MiB. A server with
/// its store, which has all but the last, takes at most 17 parts of 24.
const PARTS: [(&str, u64, u64); 5] = [
    ("store.cache", 3, 1),
    ("server.body_memory", 6, 16),
    ("server.answer_memory", 6, 16),
    ("hotkey.cache", 24, 1),
    ("shard.request_memory", 6, 64),
];

/// Returns the memory limit of this process in bytes, or `None` if it has none.
pub(super) fn limit() -> Option<u64> {
    let texts = FILES
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    // Without a limit the files say `max`, or a number beyond all memory, which is harmless.
    texts.filter_map(|text| text.trim().parse().ok()).min()
}

/// Lowers defaults to their part of the limit, in whole MiB.
pub(super) fn fit(layers: &mut Layers, limit: u64) {
    for (key, divisor, min_mib) in PARTS {
        let part = ByteCount(((limit / divisor) >> 20).max(min_mib) << 20);
        let default = layers
            .value(key)
            .as_str()
            .and_then(|text| text.parse().ok());
        if default.is_some_and(|default: ByteCount| part < default) {
            let set = layers.set(key, part.to_string().into(), SettingOrigin::MemoryLimit);
            set.expect("the key is in the list of the defaults");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::{LoadedSettings, Settings};

    #[test]
    fn defaults_fit_a_memory_limit_and_what_is_set_stays() {
        let of = |limit, variables: &[(&str, &str)]| {
            let owned = variables
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()));
            LoadedSettings::from_layers(limit, None, owned, &[]).unwrap()
        };
        let unlimited = of(Some(i64::MAX.unsigned_abs()), &[]);
        assert_eq!(unlimited.settings, Settings::default());

        let small = of(Some(600 << 20), &[("UMBO__STORE__CACHE", "500MiB")]);
        let held = |settings: &Settings| {
            [
                settings.store.cache,
                settings.server.body_memory,
                settings.server.answer_memory,
                settings.hotkey.cache,
                settings.shard.request_memory,
            ]
            .map(|bytes| bytes.0 >> 20)
        };
        assert_eq!(held(&small.settings), [500, 100, 100, 25, 100]);
        let origin = "# default, of the memory limit";
        assert_eq!(small.to_toml().matches(origin).count(), 4);

        // The smallest values that the settings can have.
        assert_eq!(held(&of(Some(1), &[]).settings), [1, 16, 16, 1, 64]);
    }
}
