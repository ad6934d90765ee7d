//! The examples of the help pages, one list for all commands; and what else the pages have in common: options of
//! every command are described on the first page only.

use clap::Command;

const COMMON: &str = "Options of every command (--server, --token, -o, …): umbo --help";

/// Examples by the names of commands, each with those of the commands above it.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "umbo serve",
            "umbo kv put demo user-7 name --value Ada",
            "umbo --server umbo.example.org:8080 kv get demo user-7 name",
        ],
    ),
    (
        "kv",
        &[
            "umbo kv put demo user-7 name --value Ada",
            "umbo kv range demo user-7",
        ],
    ),
    (
        "kv get",
        &[
            "umbo kv get demo user-7 name",
            "umbo kv get demo user-7 name -o json",
            "umbo kv get demo user-7 film --file film.mp4",
        ],
    ),
    (
        "kv put",
        &[
            "umbo kv put demo user-7 name --value Ada --ttl 30d",
            "umbo kv put demo user-7 photo --file photo.png --content-type image/png",
        ],
    ),
    (
        "kv inc",
        &[
            "umbo kv inc demo page-7 views",
            "umbo kv inc demo stock item-7 --by -3",
        ],
    ),
    ("kv touch", &["umbo kv touch demo user-7 name --ttl 30d"]),
    (
        "kv rm",
        &[
            "umbo kv rm demo user-7 name",
            "umbo kv rm demo user-7 name --dry-run",
            "umbo kv rm demo user-7 --prefix session/ --dry-run",
            "umbo kv rm demo user-7 --all",
        ],
    ),
    (
        "kv range",
        &["umbo kv range demo user-7 --prefix session/ --limit 10"],
    ),
    (
        "kv mget",
        &[
            "umbo kv mget demo user-7 user-8",
            "umbo kv mget demo --row user-7 name --row user-8 mail",
            "umbo kv mget demo --partition user-7 name mail",
        ],
    ),
    ("kv batch", &["umbo kv batch demo rows.ndjson --atomic"]),
    ("kv scan", &["umbo kv scan demo --keys-only --limit 100"]),
    (
        "kv count",
        &[
            "umbo kv count demo",
            "umbo kv count demo user-7 --prefix session/",
        ],
    ),
    (
        "kv import",
        &[
            "umbo kv import listings rows.ndjson.zst --create",
            "umbo kv import listings rows.csv --pk country --sk city --value-rest",
            "umbo kv export listings | umbo kv import listings-copy - --create",
        ],
    ),
    (
        "kv export",
        &[
            "umbo kv export listings -f listings.ndjson.zst",
            "umbo kv export listings -f listings.ndjson.zst --resume",
            "umbo kv export listings -f listings.csv --overwrite",
        ],
    ),
    (
        "load",
        &[
            "umbo load push listings rows.ndjson.zst --wait",
            "umbo load ls listings",
        ],
    ),
    (
        "load push",
        &[
            "umbo load push listings rows.ndjson.zst --as-of 2026-11-23T02:00:00Z --wait",
            "umbo load push listings rows.ndjson --mode replace --activate --wait",
            "umbo load push listings part-*.csv --pk country --sk city --value-rest --wait",
        ],
    ),
    ("load ls", &["umbo load ls", "umbo load ls listings"]),
    (
        "load status",
        &["umbo load status listings 019aaf2c -o json"],
    ),
    ("load watch", &["umbo load watch listings 019aaf2c"]),
    ("load rejects", &["umbo load rejects listings 019aaf2c"]),
    ("load pause", &["umbo load pause listings 019aaf2c"]),
    ("load resume", &["umbo load resume listings 019aaf2c"]),
    (
        "load abort",
        &["umbo load abort listings 019aaf2c --dry-run"],
    ),
    ("ns", &["umbo ns ls"]),
    ("ns ls", &["umbo ns ls"]),
    ("ns create", &["umbo ns create demo --default-ttl 30d"]),
    ("ns describe", &["umbo ns describe demo"]),
    ("ns partitions", &["umbo ns partitions demo --limit 20"]),
    (
        "ns rm",
        &["umbo ns rm demo --dry-run", "umbo ns rm demo --yes"],
    ),
    ("quota", &["umbo quota ls"]),
    ("quota ls", &["umbo quota ls"]),
    ("quota get", &["umbo quota get default-caller --toml"]),
    (
        "quota set",
        &["umbo quota set default-caller --rate 5000 --dry-run"],
    ),
    ("quota rm", &["umbo quota rm crawlers"]),
    (
        "quota users",
        &["umbo quota users default-caller --limit 10"],
    ),
    (
        "quota simulate",
        &["umbo quota simulate default-caller --rate 500 --last 10m"],
    ),
    (
        "quota explain",
        &["umbo quota explain demo get user-7 name"],
    ),
    ("quota usage", &["umbo quota usage demo"]),
    ("hot", &["umbo hot ls"]),
    ("hot ls", &["umbo hot ls"]),
    (
        "hot busy",
        &["umbo hot busy", "umbo hot busy --shard 3 --ago 10m"],
    ),
    ("hot pin", &["umbo hot pin --id AQEAAAABAAFhAA"]),
    ("hot unpin", &["umbo hot unpin shop listing:17"]),
    (
        "hot block",
        &["umbo hot block shop listing:17 --reason 'broken crawler' --ttl 30m"],
    ),
    ("hot unblock", &["umbo hot unblock shop listing:17"]),
    ("status", &["umbo status", "umbo status -o json"]),
    (
        "top",
        &[
            "umbo top",
            "umbo top -o ndjson --interval 10s >> load.ndjson",
        ],
    ),
    ("fleet", &["umbo fleet", "umbo fleet -o json"]),
    (
        "events",
        &["umbo events --since 1h", "umbo events --follow -o ndjson"],
    ),
    ("shed", &["umbo shed status"]),
    ("shed status", &["umbo shed status"]),
    ("shed log", &["umbo shed log"]),
    (
        "doctor",
        &["umbo doctor", "umbo doctor --config umbo.toml --offline"],
    ),
    (
        "why",
        &[
            "umbo why 5f3a9c01000000000007",
            "umbo why --caller crawler --last 15m",
        ],
    ),
    ("ps", &["umbo ps", "umbo ps -o ndjson"]),
    (
        "kill",
        &["umbo kill 5f3a9c01000000000007 --reason 'broken crawler'"],
    ),
    (
        "bench",
        &[
            "umbo bench",
            "umbo bench --running --connections 64 --seconds 5",
        ],
    ),
    (
        "calibrate",
        &[
            "umbo calibrate --data /var/lib/umbo",
            "umbo calibrate --seconds 300 --write cost.toml",
        ],
    ),
    ("cluster", &["umbo cluster status"]),
    ("cluster status", &["umbo cluster status"]),
    (
        "cluster plan",
        &["umbo cluster plan --nodes a=10.0.0.1:7411,b=10.0.0.2:7411 --out cluster.toml"],
    ),
    (
        "cluster map",
        &["umbo cluster map --map cluster.toml --out cluster.toml"],
    ),
    (
        "cluster promote-home",
        &["umbo cluster promote-home --map cluster.toml --shard 3 --out next.toml"],
    ),
    ("shard", &["umbo shard --config umbo.toml", "umbo shard ls"]),
    ("shard ls", &["umbo shard ls"]),
    ("shard describe", &["umbo shard describe 3"]),
    (
        "shard verify",
        &["umbo shard verify --map cluster.toml --data data"],
    ),
    (
        "shard release",
        &["umbo shard release --map next.toml --data data"],
    ),
    (
        "backup",
        &[
            "umbo backup --to /backups/2026-11-26",
            "umbo backup --to s3://bucket/umbo/2026-11-26",
            "umbo backup verify --from /backups/2026-11-26",
        ],
    ),
    (
        "backup verify",
        &["umbo backup verify --from /backups/2026-11-26"],
    ),
    (
        "restore",
        &[
            "umbo restore --from /backups/2026-11-26 --data data --shards 8",
            "umbo restore --from /backups/2026-11-26 --data data --map cluster.toml --node a",
            "umbo restore --from /backups/2026-11-26 --data data --namespace users",
        ],
    ),
    (
        "shard repair",
        &[
            "umbo shard repair --data data --dry-run",
            "umbo shard repair --data data",
        ],
    ),
    (
        "shard reclaim",
        &["umbo shard reclaim --map cluster.toml --data data --shards 3"],
    ),
    ("token", &["umbo token ls"]),
    ("token ls", &["umbo token ls"]),
    (
        "token create",
        &["umbo token create --name search --grant read,scan:listing-* --ttl 90d"],
    ),
    ("token revoke", &["umbo token revoke 4f0c1b7a"]),
    (
        "completion",
        &["umbo completion bash > ~/.local/share/bash-completion/completions/umbo"],
    ),
    ("man", &["umbo man /usr/local/share/man/man1"]),
    ("config", &["umbo config show"]),
    ("config show", &["umbo config show"]),
    ("config check", &["umbo config check umbo.toml"]),
    (
        "serve",
        &["umbo serve --data /var/lib/umbo --listen 127.0.0.1:8080"],
    ),
    ("dispatcher", &["umbo dispatcher --config umbo.toml"]),
    ("version", &["umbo version", "umbo version ls listings"]),
    ("version ls", &["umbo version ls listings"]),
    (
        "version diff",
        &[
            "umbo version diff listings 2 3",
            "umbo version diff listings 2 3 --keys 20",
        ],
    ),
    (
        "version activate",
        &[
            "umbo version activate listings 3 --dry-run",
            "umbo version activate listings 3",
        ],
    ),
    ("version rollback", &["umbo version rollback listings"]),
    ("version rm", &["umbo version rm listings 2 --dry-run"]),
];

fn of(path: &str) -> &'static [&'static str] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == path);
    found.map_or(&[], |(_, examples)| examples)
}

/// Adds the examples to the help pages of a command tree, and takes the options of every command from all pages
/// but the first.
pub(super) fn add_to(mut tree: Command) -> Command {
    // Gives the options of every command to each of them.
    tree.build();
    add(tree, "")
}

fn add(mut command: Command, path: &str) -> Command {
    let before = command.get_after_help().map(ToString::to_string);
    let examples = of(path).iter().map(|example| format!("\n  {example}"));
    let examples = format!("Examples:{}", examples.collect::<String>());
    let mut parts: Vec<String> = before.into_iter().chain([examples]).collect();
    if !path.is_empty() {
        parts.push(COMMON.to_owned());
        command = command.mut_args(|arg| {
            let is_common = arg.is_global_set();
            arg.hide(is_common)
        });
    }
    command = command.after_help(parts.join("\n\n"));
    let names: Vec<String> = command
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    for name in names.iter().filter(|name| *name != "help") {
        let below = format!("{path} {name}").trim().to_owned();
        command = command.mut_subcommand(name, |one| add(one, &below));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    fn pages(command: &Command, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        for below in command
            .get_subcommands()
            .filter(|one| one.get_name() != "help")
        {
            pages(below, format!("{path} {}", below.get_name()).trim(), found);
        }
    }

    #[test]
    fn every_page_has_examples_that_are_right() {
        let (tree, mut found) = (Cli::command(), Vec::new());
        pages(&tree, "", &mut found);
        let mut wrong = Vec::new();
        for path in found {
            let examples = of(&path);
            if examples.is_empty() {
                wrong.push(format!("'{path}' has none"));
            }
            for example in examples {
                let own = example
                    .split([' ', '|', '>'])
                    .filter(|word| !word.is_empty());
                let end = example.find(['|', '>']).unwrap_or(example.len());
                assert!(
                    own.count() > 0 && example[..end].starts_with("umbo"),
                    "{example}"
                );
                let words = example[..end].replace("'broken crawler'", "reason");
                if let Err(error) = Cli::command().try_get_matches_from(words.split_whitespace()) {
                    wrong.push(format!("{example}: {error}"));
                }
                if !example.contains(path.split(' ').next_back().unwrap_or_default()) {
                    wrong.push(format!("{example} is no example of '{path}'"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn options_of_every_command_are_described_once() {
        let mut tree = add_to(Cli::command());
        let first = tree.render_long_help().to_string();
        assert!(first.contains("--ca-file") && first.contains("--timeout"));
        let get = tree
            .find_subcommand_mut("kv")
            .and_then(|kv| kv.find_subcommand_mut("get"));
        let get = get
            .map(|get| get.render_long_help().to_string())
            .unwrap_or_default();
        assert!(
            !get.contains("--ca-file") && get.contains("umbo kv get demo"),
            "{get}"
        );
        assert!(get.lines().count() < 36, "{get}");
    }
}
