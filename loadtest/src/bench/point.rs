//! Benchmarks of one row at a time: gets and durable puts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::lab::{AXUM, CONNECTIONS, Lab, UMBO};
use super::servers::{self, ETCD, NGINX, WEBDIS, Webdis};
use crate::dataset;
use crate::failure::Failure;
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
    let requests = lab.gets(lab.rows)?;
    let pairs = lab.compare(
        CONNECTIONS,
        Cores::Client,
        (UMBO, &requests, &umbo.ids),
        (port, &requests, ids),
    )?;
    umbo.process.stop()?;
    let rates = format!("  requests a second{}", what.trim_start_matches("get: CPU"));
    Ok(vec![
        pairs.cpu(what, bound),
        pairs.rate(rates, Bound::Nothing),
    ])
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
    let own = lab.gets(rows)?;
    let redis = lab.prepare("webdis-get", rows, |_, row| {
        http("GET", &format!("/GET/{}.txt", flat_key(row)), "", b"")
    })?;
    let etcd_requests = lab.prepare("etcd-get", etcd_rows, |_, row| {
        let body = format!(r#"{{"key":"{}"}}"#, STANDARD.encode(flat_key(row)));
        http("POST", "/v3/kv/range", "", body.as_bytes())
    })?;
    let umbo_gets = (UMBO, &*own, &umbo.ids[..]);
    let (webdis_ids, etcd_ids) = (webdis.ids(), [etcd.id()]);
    let compare = |other| lab.compare(CONNECTIONS, Cores::Client, umbo_gets, other);
    let against_webdis = compare((WEBDIS, &redis, &webdis_ids))?;
    let against_etcd = compare((ETCD, &etcd_requests, &etcd_ids))?;
    umbo.process.stop()?;
    let webdis = "get: requests a second of webdis + redis";
    let etcd = "get: requests a second of etcd";
    Ok(vec![
        against_webdis.rate(webdis, Bound::AtLeast(1.7)),
        against_webdis.cpu("  processor time", Bound::Nothing),
        against_etcd.rate(etcd, Bound::AtLeast(10.0)),
        against_etcd.cpu("  processor time", Bound::Nothing),
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
        lab.request("PUT", &dataset::resource(row), "", value.as_bytes())
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
    let umbo_puts = (UMBO, &*own, &umbo.ids[..]);
    let (webdis_ids, etcd_ids) = (webdis.ids(), [etcd.id()]);
    let compare = |other| lab.compare(CONNECTIONS, Cores::All, umbo_puts, other);
    let against_webdis = compare((WEBDIS, &redis, &webdis_ids))?;
    let against_etcd = compare((ETCD, &etcd_requests, &etcd_ids))?;
    umbo.process.stop()?;
    let webdis = "put: requests a second of webdis + redis";
    let etcd = "put: requests a second of etcd";
    Ok(vec![
        against_webdis.rate(webdis, Bound::AtLeast(0.8)),
        against_webdis.cpu("  processor time", Bound::Nothing),
        against_etcd.rate(etcd, Bound::AtLeast(3.0)),
        against_etcd.cpu("  processor time", Bound::Nothing),
    ])
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
