//! Layers, their order, and the messages of refusals.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;

use super::layer::Layers;
use super::*;

const DOCUMENTED: &str = include_str!("../../../../config/umbo.toml");

fn load(
    text: &str,
    variables: &[(&str, &str)],
    flags: &[Flag],
) -> Result<LoadedSettings, SettingsError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("umbo.toml");
    std::fs::write(&file, text).unwrap();
    let variables = variables
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()));
    LoadedSettings::from_layers(None, Some(file), variables, flags)
}

/// Loads settings that must be refused and returns the message, without the folder of the file.
fn refusal(text: &str, variables: &[(&str, &str)]) -> String {
    let words = load(text, variables, &[]).unwrap_err().to_string();
    let mut plain = String::new();
    for part in words.split_inclusive("umbo.toml") {
        match part.strip_suffix("umbo.toml") {
            Some(before) => {
                let folder = before.rfind(env::temp_dir().to_str().unwrap());
                plain.push_str(&before[..folder.unwrap_or(before.len())]);
                plain.push_str("umbo.toml");
            }
            None => plain.push_str(part),
        }
    }
    plain
}

fn flag(value: &str) -> Flag {
    Flag {
        name: "--listen",
        key: "server.listen",
        value: value.to_owned(),
    }
}

#[test]
fn the_documented_file_equals_the_defaults_and_names_every_key() {
    let loaded = load(DOCUMENTED, &[], &[]).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    for entry in &loaded.effective {
        let is_named = !matches!(entry.origin, layer::SettingOrigin::Default);
        assert!(
            is_named,
            "{}.{} is not in the file",
            entry.section, entry.name
        );
    }
}

#[test]
fn every_documented_key_has_a_comment_that_tells_its_default() {
    let lines: Vec<&str> = DOCUMENTED.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((name, value)) = line.split_once(" = ") else {
            continue;
        };
        if line.starts_with('#') {
            continue;
        }
        let comment: String = lines[..at]
            .iter()
            .rev()
            .take_while(|line| line.starts_with("# "))
            .map(|line| line.trim_start_matches("# "))
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            comment.contains(&format!("Default {value}")),
            "{name}: {comment}"
        );
    }
}

#[test]
fn later_layers_win_and_each_value_knows_its_origin() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\nconnections_max = 5\nidle_timeout = \"1s\"\n";
    let variables = [
        ("UMBO__SERVER__LISTEN", "127.0.0.1:2"),
        ("UMBO__SERVER__CONNECTIONS_MAX", "6"),
        ("UMBO_CONFIG", "not a setting"),
        ("PATH", "/bin"),
    ];
    let loaded = load(file, &variables, &[flag("127.0.0.1:3")]).unwrap();
    let server = &loaded.settings.server;
    assert_eq!(server.listen.port(), 3);
    assert_eq!(server.connections_max, 6);
    assert_eq!(server.idle_timeout.to_string(), "1s");
    let shown = loaded.to_toml();
    let origin = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once("  # ").unwrap().1.to_owned()
    };
    assert_eq!(origin("listen"), "--listen");
    assert_eq!(origin("connections_max"), "UMBO__SERVER__CONNECTIONS_MAX");
    assert!(origin("idle_timeout").ends_with("umbo.toml:4"));
    assert_eq!(origin("cache"), "default");
}

#[test]
fn variables_that_nothing_reads_are_named_and_stop_nothing() {
    let warning = |names: &[&str]| {
        let variables: Vec<_> = names.iter().map(|&name| (name, "x")).collect();
        load("", &variables, &[]).unwrap().warning()
    };
    let by_platform = ["UMBO_SERVICE_HOST", "UMBO_PORT_8080_TCP", "UMBO_PORT"];
    assert_eq!(
        warning(&by_platform).unwrap(),
        "the environment has variables that are not read: UMBO_PORT, UMBO_PORT_8080_TCP, UMBO_SERVICE_HOST"
    );
    for (name, meant) in [
        ("UMBO_SERVER_LISTEN", "UMBO__SERVER__LISTEN"),
        ("UMBO_SERVER_LISTN", "UMBO__SERVER__LISTEN"),
        ("UMBO_STORE__FOLDER", "UMBO__STORE__FOLDER"),
        ("UMBO_TOKENS", "UMBO_TOKEN"),
    ] {
        let said = warning(&[name]).unwrap();
        assert!(
            said.ends_with(&format!("{name} (did you mean {meant}?)")),
            "{said}"
        );
    }
    assert_eq!(warning(&layer::OTHER_VARIABLES), None);
    assert_eq!(warning(&["PATH", "UMBO", "UMBOX_Y"]), None);
}

#[test]
fn what_is_shown_reads_back_as_the_same_settings() {
    let file = "[trace]\notlp_endpoint = \"http://127.0.0.1:4317\"\nsample_ratio = 1\n";
    let loaded = load(file, &[("UMBO__STORE__CACHE", "3MiB")], &[]).unwrap();
    assert_eq!(
        load(&loaded.to_toml(), &[], &[]).unwrap().settings,
        loaded.settings
    );
}

#[test]
fn no_value_at_all_is_the_defaults() {
    assert_eq!(load("", &[], &[]).unwrap().settings, Settings::default());
    let nothing = LoadedSettings::from_layers(None, None, [], &[]).unwrap();
    assert_eq!(nothing.settings, Settings::default());
    assert!(nothing.source().contains("default settings"));
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_one() {
    let cases = [
        (
            "[server]\nlistn = \"127.0.0.1:1\"\n",
            "umbo.toml:2: there is no setting 'server.listn'; did you mean 'server.listen'?",
        ),
        (
            "\n[sever]\nlisten = \"127.0.0.1:1\"\n",
            "umbo.toml:2: there is no setting 'sever'; did you mean '[server]'?",
        ),
        (
            "listen = \"127.0.0.1:1\"\n",
            "umbo.toml:1: there is no setting 'listen'; did you mean 'server.listen'?",
        ),
        (
            "[store]\nidle_timeout = \"1s\"\n",
            "umbo.toml:2: there is no setting 'store.idle_timeout'; did you mean \
             'server.idle_timeout'?",
        ),
        (
            "[log]\ncompletely_different = 1\n",
            "umbo.toml:2: there is no setting 'log.completely_different' (umbo config show lists \
             all)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text, &[]), expected);
    }
}

#[test]
fn unknown_variables_are_refused_too() {
    let cases = [
        (
            "UMBO__SERVER__LISTN",
            "environment: there is no setting 'UMBO__SERVER__LISTN'; did you mean \
             'UMBO__SERVER__LISTEN'?",
        ),
        (
            "UMBO__server__listen",
            "environment: there is no setting 'UMBO__server__listen'; did you mean \
             'UMBO__SERVER__LISTEN'?",
        ),
        (
            "UMBO__",
            "environment: there is no setting 'UMBO__' (umbo config show lists all)",
        ),
    ];
    for (name, expected) in cases {
        assert_eq!(refusal("", &[(name, "127.0.0.1:1")]), expected);
    }
}

#[test]
fn wrong_types_say_key_expected_and_found() {
    let cases = [
        (
            "[server]\nconnections_max = \"many\"\n",
            "umbo.toml:2: server.connections_max is a whole number, but the text \"many\" was \
             found",
        ),
        (
            "[server]\nidle_timeout = 10\n",
            "umbo.toml:2: server.idle_timeout is a text in quotes, but the number 10 was found",
        ),
        (
            "[server]\ninsecure = \"yes\"\n",
            "umbo.toml:2: server.insecure is true or false, but the text \"yes\" was found",
        ),
        (
            "[server]\nlisten = [\"127.0.0.1:1\"]\n",
            "umbo.toml:2: server.listen is a text in quotes, but a list was found",
        ),
        (
            "store = 3\n",
            "umbo.toml:1: store is a section ([name] and the keys under it), but the number 3 \
             was found",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text, &[]), expected);
    }
    assert_eq!(
        refusal("", &[("UMBO__SERVER__INSECURE", "maybe")]),
        "UMBO__SERVER__INSECURE: server.insecure is true or false, but the text \"maybe\" was \
         found"
    );
}

#[test]
fn values_that_cannot_be_read_say_what_belongs_there() {
    let cases = [
        (
            "[server]\nidle_timeout = \"10 parsecs\"\n",
            "umbo.toml:2: server.idle_timeout: '10 parsecs' is no time span (expected like 50ms, \
             10s or 1m 30s)",
        ),
        (
            "[server]\nidle_timeout = \"5M\"\n",
            "umbo.toml:2: server.idle_timeout: '5M' is no time span (expected like 50ms, 10s or 1m 30s)",
        ),
        (
            "[store]\ncache = \"1024\"\n",
            "umbo.toml:2: store.cache: '1024' is no size (expected like 256KiB, 2MiB or 1GiB)",
        ),
        (
            "[server]\nlisten = \"localhost\"\n",
            "umbo.toml:2: server.listen: this is no address with a port (expected like 127.0.0.1:8080 or \
             [::1]:8080)",
        ),
        (
            "[log]\nfilter = \"umbo=loud\"\n",
            "umbo.toml:2: log.filter: 'umbo=loud' is no log filter (expected a level, off, error, \
             warn, info, debug or trace, or directives like info,umbo_dispatcher=debug)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text, &[]), expected);
    }
    let unknown_format = refusal("[log]\nformat = \"xml\"\n", &[]);
    assert!(
        unknown_format.contains("`auto`, `human`, `json`"),
        "{unknown_format}"
    );
    let negative = refusal("[server]\nconnections_max = -1\n", &[]);
    assert!(
        negative.starts_with("umbo.toml:2: server.connections_max: "),
        "{negative}"
    );
}

#[test]
fn values_outside_their_bounds_say_the_bounds() {
    let cases = [
        (
            "[server]\nconnections_max = 0\n",
            "umbo.toml:2: server.connections_max is 0, and must be 1 to 1000000",
        ),
        (
            "[server]\nbody_timeout = \"2h\"\n",
            "umbo.toml:2: server.body_timeout is 2h, and must be 100ms to 1h",
        ),
        (
            "[store]\nshards = 513\n",
            "umbo.toml:2: store.shards is 513, and must be 0 to 512",
        ),
        (
            "[store]\nfolder = \"\"\n",
            "umbo.toml:2: store.folder is empty, and must be a text",
        ),
        (
            "[records]\nstale_max = \"4s\"\n",
            "umbo.toml:2: records.stale_max is 4s, and must be 5s to 30days",
        ),
        (
            "[quota]\nbuckets_max = 63\n",
            "umbo.toml:2: quota.buckets_max is 63, and must be 64 to 16777216",
        ),
        (
            "[cost]\nversion = 0\n",
            "umbo.toml:2: cost.version is 0, and must be 1 to 4294967295",
        ),
        (
            "[cost]\nrow = 1000.000001\n",
            "umbo.toml:2: cost.row is 1000.000001, and must be 0 to 1000",
        ),
        (
            "[shard]\nin_flight_max = 0\n",
            "umbo.toml:2: shard.in_flight_max is 0, and must be 16 to 1000000",
        ),
        (
            "[shard]\nrequest_memory = \"1MiB\"\n",
            "umbo.toml:2: shard.request_memory is 1MiB, and must be 64MiB to 1TiB",
        ),
        (
            "[trace]\nsample_ratio = nan\n",
            "umbo.toml:2: trace.sample_ratio is NaN, and must be 0 to 1",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text, &[]), expected);
    }
}

#[test]
fn prices_are_exact_decimals() {
    let cost = |text: &str, variables: &[(&str, &str)]| {
        let text = format!("[cost]\n{text}\n");
        load(&text, variables, &[]).unwrap().settings.cost
    };
    for (text, micros) in [
        ("0", 0),
        ("0.05", 50_000),
        ("0.000001", 1),
        ("1e-6", 1),
        ("1.062744", 1_062_744),
        ("999.999999", 999_999_999),
        ("1_000", 1_000_000_000),
    ] {
        assert_eq!(cost(&format!("row = {text}"), &[]).row.as_micros(), micros);
        if !text.contains('_') {
            let variable = [("UMBO__COST__ROW", text)];
            assert_eq!(cost("row = 7", &variable).row.as_micros(), micros);
        }
    }
    for text in [
        "-1",
        "-0.5",
        "-0.0",
        "0.0000001",
        "1.0000001",
        "nan",
        "inf",
        "-inf",
        "1e300",
    ] {
        let words = refusal(&format!("[cost]\nwrite_base = {text}\n"), &[]);
        let expected = "is no price (expected a number of request units that is not negative, \
                        with at most 6 decimals)";
        assert!(
            words.starts_with("umbo.toml:2: cost.write_base: "),
            "{words}"
        );
        assert!(words.ends_with(expected), "{words}");
    }
    let loaded = load("[cost]\nlatency_ms = 0.123456\n", &[], &[]).unwrap();
    let again = load(&loaded.to_toml(), &[], &[]).unwrap();
    assert_eq!(again.settings, loaded.settings);
}

#[test]
fn values_that_do_not_go_together_are_both_named() {
    assert_eq!(
        refusal("[server]\nlisten = \"127.0.0.1:8081\"\n", &[]),
        "server.listen = \"127.0.0.1:8081\" (umbo.toml:2) and server.admin_listen = \
         \"127.0.0.1:8081\" (default) contradict each other: two servers cannot listen on one address"
    );
    let variables = [("UMBO__SERVER__DRAIN_TIMEOUT", "9s")];
    assert!(refusal("", &variables).contains(
        "server.drain_timeout = \"9s\" (UMBO__SERVER__DRAIN_TIMEOUT) and \
         server.default_timeout = \"10s\" (default)"
    ));
    for (text, second) in [
        ("[tls]\ncertificate = \"a.pem\"\n", "tls.key"),
        ("[tls]\nclient_ca = \"a.pem\"\n", "tls.certificate"),
        ("[trace]\nsample_ratio = 0.5\n", "trace.otlp_endpoint"),
        ("[log]\notlp = true\n", "trace.otlp_endpoint"),
        ("[cluster]\nnode = \"a\"\n", "cluster.map"),
        (
            "[cluster]\nmap = \"m\"\nnode = \"a\"\n[store]\nshards = 4\n",
            "store.shards",
        ),
        ("[cluster]\nkey = \"a.pem\"\n", "cluster.certificate"),
        ("[cluster]\nca = \"a.pem\"\n", "cluster.certificate"),
        ("[cassandra]\nkey = \"a.pem\"\n", "cassandra.certificate"),
        (
            "[cassandra]\ncertificate = \"a.pem\"\nkey = \"a.pem\"\n",
            "cassandra.ca",
        ),
        (
            "[cluster]\ncertificate = \"a.pem\"\nkey = \"a.pem\"\n",
            "cluster.ca",
        ),
        (
            "[shard]\nlisten = \"127.0.0.1:7412\"\n",
            "shard.admin_listen",
        ),
    ] {
        assert!(refusal(text, &[]).contains(second), "{text}");
    }
    let named = "[cluster]\nlisten = \"0.0.0.0:7410\"\nadvertise = \"[::1]:7410\"\n";
    let cluster = load(named, &[], &[]).unwrap().settings.cluster;
    assert_eq!(cluster.listen, "0.0.0.0:7410".parse().ok());
    assert_eq!(cluster.advertise.as_deref(), Some("[::1]:7410"));
    for (text, expected) in [
        ("listen = \"7410\"", "cluster.listen"),
        ("advertise = \"here:0\"", "cluster.advertise is here:0"),
        (
            "advertise = \"0.0.0.0:7410\"",
            "cluster.advertise is 0.0.0.0",
        ),
        ("advertise = \"[::]:7410\"", "cluster.advertise is [::]"),
    ] {
        let text = format!("[cluster]\n{text}\n");
        assert!(refusal(&text, &[]).contains(expected), "{text}");
    }
    let any_port = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n";
    assert!(load(any_port, &[], &[]).is_ok());
}

#[test]
fn a_broken_file_is_named_with_its_line() {
    let words = refusal("[server]\nlisten = \n", &[]);
    assert!(words.starts_with("umbo.toml is not TOML"), "{words}");
    assert!(words.contains("line 2"), "{words}");
    let absent = LoadedSettings::read_file(Path::new("no/such/file.toml")).unwrap_err();
    assert!(absent.to_string().contains("no/such/file.toml"));
}

#[test]
fn flags_name_keys_that_exist() {
    let unreadable = load("", &[], &[flag("nonsense")]).unwrap_err().to_string();
    assert!(
        unreadable.starts_with("--listen: server.listen: "),
        "{unreadable}"
    );
}

#[test]
fn no_two_settings_share_a_variable() {
    let all = Layers::defaults().into_effective();
    let variables: BTreeSet<String> = all
        .iter()
        .map(|entry| format!("{}__{}", entry.section, entry.name).to_uppercase())
        .collect();
    assert_eq!(variables.len(), all.len());
}
