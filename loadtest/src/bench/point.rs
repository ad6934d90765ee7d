//! Benchmarks of one row at a time: gets and durable puts.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::lab::{AXUM, Lab, Target, UMBO};
use super::plan::Pairs;
use super::servers::{self, ETCD, NGINX, WEBDIS, Webdis};
use crate::dataset;
use crate::failure::Failure;
use crate::load::Report;
use crate::load::requests::http;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

/// Rows that etcd holds: it takes minutes to fill it, and fewer rows only make it faster.
const ETCD_ROWS: u64 = 100_000;
/// Rows of one transaction of etcd, and of one MSET.
const FILL_ROWS: u64 = 100;

/// Processor time of a get against a bare axum handler, both on one core.
pub(super) fn get(lab: &mut Lab) -> Result<Vec<Verdict>, Failure> {
    let axum = lab.own_peer(AXUM, &["axum-static".to_owned()])?;
    let ids = [axum.id()];
    get_against(
        lab,
        AXUM,
        &ids,
        "get: CPU of bare axum",
        Bound::AtMost(1.45),
    )
}

/// The same against nginx.
pub(super) fn get_nginx(lab: &mut Lab) -> Result<Vec<Verdict>, Failure> {
    let nginx = servers::nginx(lab)?;
    let ids = [nginx.id()];
    get_against(
        lab,
        NGINX,
        &ids,
        "get: CPU of nginx 'return 200'",
        Bound::Nothing,
    )
}

fn get_against(
    lab: &mut Lab,
    port: u16,
    ids: &[u32],
    what: &str,
    bound: Bound,
) -> Result<Vec<Verdict>, Failure> {
    let data = lab.loaded()?;
    let umbo = lab.umbo(&data, Cores::Server)?;
    lab.warm(UMBO)?;
    let requests = lab.prepare("get", lab.rows, umbo_get)?;
    let target = |port, servers| Target {
        port,
        requests: &requests,
        servers,
        cores: Cores::Client,
    };
    let pairs = Pairs::measure(
        lab.plan.rounds,
        |round| lab.turn(&target(UMBO, &umbo.ids), round),
        |round| lab.turn(&target(port, ids), round),
    )?;
    umbo.process.stop()?;
    let (own, other) = pairs.medians(Report::cpu_micros);
    let detail = format!("{own:.2} µs and {other:.2} µs a request");
    let verdict = Verdict::new(what, bound, pairs.ratios(Report::cpu_micros), detail);
    let (own, other) = pairs.medians(Report::rate);
    let detail = format!("{own:.0} and {other:.0} a second");
    let what = format!("  requests a second{}", what.trim_start_matches("get: CPU"));
    let rates = Verdict::new(what, Bound::Nothing, pairs.ratios(Report::rate), detail);
    Ok(vec![verdict, rates])
}

/// One server with its requests, as a turn asks for it.
type Server<'a> = (u16, &'a Path, &'a [u32]);

/// Measures Umbo in turns with two peers, one after the other.
fn against(
    lab: &Lab,
    cores: Cores,
    umbo: Server<'_>,
    one: Server<'_>,
    other: Server<'_>,
) -> Result<(Pairs, Pairs), Failure> {
    let turn = |(port, requests, servers): Server<'_>, round| {
        let target = Target {
            port,
            requests,
            servers,
            cores,
        };
        lab.turn(&target, round)
    };
    let pairs = |peer| {
        Pairs::measure(
            lab.plan.rounds,
            |round| turn(umbo, round),
            |round| turn(peer, round),
        )
    };
    Ok((pairs(one)?, pairs(other)?))
}

/// Gets a second against webdis and redis, and against etcd; every server on one core.
pub(super) fn get_peers(lab: &mut Lab) -> Result<Vec<Verdict>, Failure> {
    let data = lab.loaded()?;
    let umbo = lab.umbo(&data, Cores::Server)?;
    lab.warm(UMBO)?;
    let webdis = Webdis::start(lab, Cores::Server, false)?;
    let rows = lab.rows;
    lab.send_once(WEBDIS, fills(rows, webdis_fill))?;
    let etcd = servers::etcd(lab, Cores::Server)?;
    let etcd_rows = ETCD_ROWS.min(rows);
    lab.send_once(ETCD, fills(etcd_rows, etcd_fill))?;
    let own = lab.prepare("get", rows, umbo_get)?;
    let redis = lab.prepare("webdis-get", rows, |_, row| {
        http("GET", &format!("/GET/{}.txt", flat_key(row)), "", b"")
    })?;
    let etcd_requests = lab.prepare("etcd-get", etcd_rows, |_, row| {
        let body = format!(r#"{{"key":"{}"}}"#, STANDARD.encode(flat_key(row)));
        http("POST", "/v3/kv/range", "", body.as_bytes())
    })?;
    let (against_webdis, against_etcd) = against(
        lab,
        Cores::Client,
        (UMBO, &own, &umbo.ids),
        (WEBDIS, &redis, &webdis.ids()),
        (ETCD, &etcd_requests, &[etcd.id()]),
    )?;
    umbo.process.stop()?;
    Ok(vec![
        of_rates(
            "get: requests a second of webdis + redis",
            1.7,
            &against_webdis,
        ),
        of_rates("get: requests a second of etcd", 10.0, &against_etcd),
    ])
}

/// Durable puts a second against webdis and redis, and against etcd; all cores for all processes.
pub(super) fn put(lab: &mut Lab) -> Result<Vec<Verdict>, Failure> {
    let data = lab.path("data");
    let umbo = lab.umbo(&data, Cores::All)?;
    lab.create_namespace()?;
    let webdis = Webdis::start(lab, Cores::All, true)?;
    let etcd = servers::etcd(lab, Cores::All)?;
    let rows = lab.rows;
    let own = lab.prepare("put", rows, |lab, row| {
        let value = dataset::value(row);
        lab.request("PUT", &resource(row), "", value.as_bytes())
    })?;
    let redis = lab.prepare("webdis-put", rows, |_, row| {
        let value = dataset::value(row);
        http(
            "PUT",
            &format!("/SET/{}", flat_key(row)),
            "",
            value.as_bytes(),
        )
    })?;
    let etcd_requests = lab.prepare("etcd-put", rows, |_, row| {
        let (key, value) = (
            STANDARD.encode(flat_key(row)),
            STANDARD.encode(dataset::value(row)),
        );
        let body = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
        http("POST", "/v3/kv/put", "", body.as_bytes())
    })?;
    let (against_webdis, against_etcd) = against(
        lab,
        Cores::All,
        (UMBO, &own, &umbo.ids),
        (WEBDIS, &redis, &webdis.ids()),
        (ETCD, &etcd_requests, &[etcd.id()]),
    )?;
    umbo.process.stop()?;
    Ok(vec![
        of_rates(
            "put: requests a second of webdis + redis",
            0.8,
            &against_webdis,
        ),
        of_rates("put: requests a second of etcd", 3.0, &against_etcd),
    ])
}

fn of_rates(what: &str, at_least: f64, pairs: &Pairs) -> Verdict {
    let (own, other) = pairs.medians(Report::rate);
    let (own_cpu, other_cpu) = pairs.medians(Report::cpu_micros);
    let detail = format!(
        "{own:.0} and {other:.0} a second, {own_cpu:.1} µs and {other_cpu:.1} µs of CPU each"
    );
    Verdict::new(
        what,
        Bound::AtLeast(at_least),
        pairs.ratios(Report::rate),
        detail,
    )
}

fn umbo_get(lab: &Lab, row: u64) -> Vec<u8> {
    lab.request("GET", &resource(row), "", b"")
}

fn resource(row: u64) -> String {
    format!("kv/{}/{}", dataset::partition(row), dataset::sort(row))
}

/// Returns the key of a row for servers that know one key only.
fn flat_key(row: u64) -> String {
    format!("{}:{}", dataset::partition(row), dataset::sort(row))
}

/// Returns requests that store rows, many with each.
fn fills(rows: u64, make: fn(std::ops::Range<u64>) -> Vec<u8>) -> impl Iterator<Item = Vec<u8>> {
    let firsts = (0..rows).step_by(FILL_ROWS as usize);
    firsts.map(move |first| make(first..(first + FILL_ROWS).min(rows)))
}

fn webdis_fill(rows: std::ops::Range<u64>) -> Vec<u8> {
    let mut command = "MSET".to_owned();
    for row in rows {
        command.push('/');
        command.push_str(&flat_key(row));
        command.push('/');
        command.push_str(&dataset::value(row));
    }
    http("POST", "/", "", command.as_bytes())
}

fn etcd_fill(rows: std::ops::Range<u64>) -> Vec<u8> {
    let puts: Vec<String> = rows
        .map(|row| {
            let key = STANDARD.encode(flat_key(row));
            let value = STANDARD.encode(dataset::value(row));
            format!(r#"{{"requestPut":{{"key":"{key}","value":"{value}"}}}}"#)
        })
        .collect();
    let body = format!(r#"{{"success":[{}]}}"#, puts.join(","));
    http("POST", "/v3/kv/txn", "", body.as_bytes())
}
