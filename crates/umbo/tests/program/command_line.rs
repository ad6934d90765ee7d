//! How the command line is spoken to, and what it refuses or leaves alone, against a real server.

#![allow(clippy::format_collect, reason = "tests are read, not timed")]

use std::collections::BTreeSet;

use crate::server::{Server, checked, command};

/// Rows of several partitions.
fn rows() -> String {
    let row = |at: usize| {
        format!(
            "{{\"pk\":\"p{}\",\"sk\":\"s{at}\",\"v\":\"v{at}\"}}\n",
            at % 7
        )
    };
    let rows: String = (0..500).map(row).collect();
    rows + "{\"pk\":\"empty\",\"v\":\"\"}\n"
}

#[test]
fn bounds_that_bound_nothing_remove_nothing() {
    let server = Server::start();
    server.import(rows());
    for bounds in [
        &["--prefix", ""][..],
        &["--start", ""],
        &["--end", ""],
        &["--prefix", "0x", "--start", "b64:"],
        &["--prefix", "", "--dry-run"],
        &["--start", "", "--end", "s3"],
    ] {
        let ran = server.run(2, &[&["kv", "rm", "n", "p0"], bounds].concat());
        assert!(ran.err.contains("--all"), "{}", ran.err);
    }
    assert_eq!(server.run(0, &["kv", "count", "n", "p0"]).text(), "72\n");
    server.run(0, &["kv", "rm", "n", "p0", "--all"]);
    let ran = server.run(0, &["kv", "rm", "n", "p1"]);
    assert!(
        ran.err.contains("nothing removed: ") && ran.err.contains("--all"),
        "{}",
        ran.err
    );
    let ran = server.run(0, &["kv", "rm", "n", "empty"]);
    assert!(
        ran.err.starts_with("removed the row 'empty'"),
        "{}",
        ran.err
    );
    let ran = server.run(0, &["kv", "rm", "n", "empty"]);
    assert!(ran.err.starts_with("nothing removed: "), "{}", ran.err);
}

#[test]
fn options_of_every_command_stand_anywhere() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    server.run(0, &["kv", "put", "n", "p", "s", "--value", "v"]);
    let address = server.url.trim_start_matches("http://");
    for arguments in [
        &["--server", address, "kv", "get", "n", "p", "s"][..],
        &["kv", "--server", address, "get", "n", "p", "s"],
        &["kv", "get", "n", "p", "s", "--server", address],
    ] {
        let ran = run_without_environment(&server, arguments);
        assert_eq!(ran.stdout, b"v", "{ran:?}");
    }
    let several = server.run(
        0,
        &[
            "-o", "json", "kv", "mget", "n", "--row", "p", "s", "--row", "p", "t",
        ],
    );
    let several = several.json();
    assert_eq!(
        (&several[0]["v"], &several[1]["status"]),
        (&"v".into(), &404.into())
    );
    server.run(2, &["kv", "mget", "n", "--row", "p"]);
    let help = run_without_environment(&server, &[]);
    assert!(help.status.success(), "{help:?}");
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("Usage: umbo")
    );
    assert!(!server.path("data/0").exists());
}

fn run_without_environment(server: &Server, arguments: &[&str]) -> std::process::Output {
    command("", server.folder.path(), arguments)
        .env_remove("UMBO_SERVER")
        .env_remove("UMBO_DEFAULT_COMMAND")
        .output()
        .unwrap()
}

#[test]
fn a_token_says_with_what_it_is_revoked() {
    let server = Server::start();
    let ran = server.run(0, &["token", "create", "--name", "a", "--grant", "*:*"]);
    let (token, id) = (ran.text().trim(), ran.err.split(' ').nth(1).unwrap());
    let id = id.trim_end_matches(';');
    server.run(0, &["token", "revoke", id, "--token", token]);
}

#[test]
fn a_token_is_revoked_by_a_name_that_no_other_has() {
    let server = Server::start();
    let create = |name: &str, token: &[&str]| {
        let arguments = ["token", "create", "--name", name, "--grant", "*:*"];
        let ran = server.run(0, &[&arguments[..], token].concat());
        ran.text().trim().to_owned()
    };
    let token = create("owner", &[]);
    let by_owner = ["--token", &token];
    for name in ["job", "twin", "twin"] {
        create(name, &by_owner);
    }
    let revoke =
        |code, name: &str| server.run(code, &[&["token", "revoke", name][..], &by_owner].concat());
    revoke(0, "job");
    revoke(3, "job");
    let refused = revoke(2, "twin").err;
    assert!(
        refused.contains("2 tokens have the name 'twin'"),
        "{refused}"
    );
}

#[test]
fn keys_that_look_like_bytes_are_typed_as_text() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    let wallet = "text:0x42b6";
    server.run(0, &["kv", "put", "n", wallet, "--value", "v"]);
    assert_eq!(server.run(0, &["kv", "get", "n", wallet]).text(), "v");
    server.run(3, &["kv", "get", "n", "0x42b6"]);
    let table = server.run(0, &["kv", "scan", "n", "-o", "table", "--keys-only"]);
    assert!(table.text().contains(wallet), "{}", table.text());
    let refused = server.run(2, &["kv", "get", "n", "0x42b"]).err;
    assert!(refused.contains("text:0x42b"), "{refused}");
    let ran = server.run(0, &["kv", "inc", "n", "visits", "5"]);
    assert!(
        ran.text().contains('1') && ran.err.contains("--by 5 adds 5"),
        "{}",
        ran.err
    );
}

#[test]
fn what_is_not_rows_is_refused_at_once_in_one_message() {
    let server = Server::start();
    for (name, text, kind) in [
        ("a.txt", &b"pk,sk,v\na,b,c\nd,e,f\n"[..], "CSV"),
        ("a.json", b"[{\"pk\":\"a\",\"v\":\"b\"}]", "a JSON array"),
        ("a.bin", b"\xfe\x01\x02\n\x02\n", "binary data"),
        ("b.txt", b"pk;sk;v\na;b;c\n", "semicolons"),
        ("c.txt", b"pk\tsk\tv\na\tb\tc\n", "tabs"),
    ] {
        let ran = server.run(2, &["kv", "import", "n", &server.file(name, text)]);
        assert!(
            ran.err.contains("line 1 is not a JSON object") && ran.err.contains(kind),
            "{}",
            ran.err
        );
        let left = std::fs::read_dir(server.folder.path()).unwrap();
        let left = left.filter(|file| {
            file.as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with(name)
        });
        assert_eq!(left.count(), 1);
    }
    let wide = server.file("wide.json", b"\xff\xfe{\0}\0\n\0");
    let ran = server.run(2, &["kv", "import", "n", &wide]);
    assert!(ran.err.contains("UTF-16"), "{}", ran.err);
    server.run(3, &["ns", "describe", "n"]);
    server.run_with_input(7, &["kv", "import", "n", "-"], b"");
}

#[test]
fn variables_that_are_not_read_are_named_and_those_of_the_help_page_are_read() {
    let server = Server::start();
    let help = server.run(0, &["--help"]);
    let mut show = command(&server.url, server.folder.path(), &["config", "show"]);
    let words = help
        .text()
        .split(|c: char| !c.is_ascii_uppercase() && c != '_');
    let named: BTreeSet<_> = words.filter(|word| word.starts_with("UMBO_")).collect();
    assert!(named.len() >= 4, "{named:?}");
    for name in named {
        show.env(name, "true");
    }
    show.env("UMBO_SERVER_LISTEN", "127.0.0.1:1");
    show.env("UMBO_PORT_8080_TCP_PORT", "8080");
    let ran = checked(0, &["config", "show"], show.output().unwrap());
    let (_, unread) = ran.err.trim().split_once("not read: ").unwrap();
    assert_eq!(
        unread,
        "UMBO_PORT_8080_TCP_PORT, UMBO_SERVER_LISTEN (did you mean UMBO__SERVER__LISTEN?)"
    );
}

#[test]
fn a_namespace_that_was_mistyped_is_refused_with_the_nearest() {
    let server = Server::start();
    server.run(0, &["ns", "create", "demo"]);
    let file = server.file("rows.ndjson", "{\"pk\":\"a\",\"v\":\"1\"}\n");
    let push = ["load", "push", "demoo", &file];
    for arguments in [&["kv", "import", "demoo", &file][..], &push] {
        let said = server.run(3, arguments).err;
        assert!(said.contains("did you mean 'demo'?"), "{said}");
        server.run(3, &["ns", "describe", "demoo"]);
    }
    let said = server.run(3, &["kv", "import", "shop", &file]).err;
    assert!(
        said.contains("umbo ns create shop") && !said.contains("did you mean"),
        "{said}"
    );
    let left = std::fs::read_dir(server.folder.path()).unwrap();
    assert_eq!(
        left.count(),
        2,
        "the rows and the data, and nothing of an import"
    );
    server.run(0, &["kv", "import", "demoo", &file, "--create"]);
    assert_eq!(server.run(0, &["kv", "get", "demoo", "a"]).text(), "1");
}

#[test]
fn a_file_that_exists_is_replaced_only_when_that_is_said() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    server.run(0, &["kv", "put", "n", "k", "--value", "v"]);
    for command in [&["kv", "export", "n"][..], &["kv", "get", "n", "k"]] {
        let file = server.file("mine", "mine");
        let to_file = [command, &["--file", &file]].concat();
        let refused = server.run(2, &to_file).err;
        assert!(
            refused.contains("mine exists already") && refused.contains("--overwrite"),
            "{refused}"
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
        let left = std::fs::read_dir(server.folder.path()).unwrap();
        assert_eq!(
            left.count(),
            2,
            "the file and the data, and no part of another"
        );
        server.run(0, &[&to_file[..], &["--overwrite"]].concat());
        assert!(std::fs::read(&file).unwrap() != b"mine");
    }
}

#[test]
fn a_port_of_plain_http_that_is_asked_for_tls_is_told_apart_from_a_wrong_certificate() {
    let server = Server::start();
    let address = server.url.replace("http://", "https://");
    let said = server.run(2, &["ns", "ls", "--server", &address]).err;
    assert!(
        said.contains("does not speak TLS")
            && said.contains("http://")
            && !said.contains("--ca-file"),
        "{said}"
    );
}
