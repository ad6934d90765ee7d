//! The connections to the cluster: made once, with the tables, and over TLS if the settings say so.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::PoolSize;
use scylla::client::SelfIdentity;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind as SetupErrorKind,
    DbError, MetadataError, NewSessionError,
};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::DefaultRetryPolicy;
use scylla::statement::{Consistency, SerialConsistency};

use umbo_tls::PeerTlsFiles;
use xxhash_rust::xxh3::xxh3_128;

use crate::guarded::random_id;
use crate::hedge::HedgeBudget;
use crate::schema::{FORMAT, TABLES};
use crate::settings::{CassandraOpenError, CassandraSettings};
use crate::tunnel::Tunnels;

/// A node that is silent is asked whether it lives after this time at least, and given up after as long again: with the
/// driver's 30 s, requests stand still for as long when a node stops. The driver warns of one second at each start.
const KEEPALIVE_MIN: Duration = Duration::from_millis(1_100);
/// The part of the time of a request after which a silent node is asked: most of it is left for another node.
const KEEPALIVE_PART: u32 = 5;

/// When a node asks another copy because the first one has not answered: nodes know the 99th percentile of a table some
/// seconds after their start only, and take half of their timeout until then.
const HEDGE: &str = "MIN(99PERCENTILE,50MS)";

/// The value of `commitlog_sync` with which a node answers before its disk has a write.
pub(crate) const PERIODIC: &str = "periodic";

/// Connects, and makes keyspace and tables if they are missing.
pub(crate) async fn connect(
    settings: &CassandraSettings,
    hedges: Arc<HedgeBudget>,
) -> Result<Session, CassandraOpenError> {
    settings.ask().await?;
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::LocalQuorum)
        .serial_consistency(Some(SerialConsistency::LocalSerial))
        .request_timeout(Some(settings.request_timeout))
        .retry_policy(Arc::new(DefaultRetryPolicy::new()))
        .speculative_execution_policy(Some(hedges))
        .load_balancing_policy(
            DefaultPolicy::builder()
                .prefer_datacenter(settings.data_center.clone())
                .token_aware(true)
                .build(),
        )
        .build();
    let keepalive = (settings.request_timeout / KEEPALIVE_PART).max(KEEPALIVE_MIN);
    let mut builder = SessionBuilder::new();
    if let Some((user, password)) = &settings.credentials {
        builder = builder.user(user, password);
    }
    builder = match &settings.tls {
        None => builder.known_nodes(&settings.contact_points),
        Some(tls) => through_tunnels(builder, &settings.contact_points, tls)?,
    };
    let session = builder
        .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
        .disallow_shard_aware_port(true)
        .keepalive_interval(keepalive)
        .keepalive_timeout(keepalive)
        .default_execution_profile_handle(profile.into_handle())
        .build()
        .await
        .map_err(refused)?;
    check_data_center(&session, settings)?;
    make_tables(&session, settings).await?;
    Ok(session)
}

/// Lets the driver connect to the nodes through TLS.
fn through_tunnels(
    builder: SessionBuilder,
    nodes: &[String],
    tls: &PeerTlsFiles,
) -> Result<SessionBuilder, CassandraOpenError> {
    let port = nodes.first().and_then(|node| node.rsplit_once(':'));
    let port = port.and_then(|(_, port)| port.parse().ok());
    let secret = format!("{:016x}", random_id().map_err(failed)?);
    let tunnels = Tunnels::new(tls.clone(), secret.clone(), port.unwrap_or_default());
    let mut local = Vec::with_capacity(nodes.len());
    for node in nodes {
        let random = random_id().map_err(failed)?;
        local.push(tunnels.of_contact_point(node, random).map_err(failed)?);
    }
    Ok(builder
        .known_nodes_addr(local)
        .custom_identity(SelfIdentity::new().with_client_id(secret))
        .address_translator(Arc::new(tunnels)))
}

/// Returns why there is no session. A password that is wrong or missing has an error for it.
fn refused(error: NewSessionError) -> CassandraOpenError {
    let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
        ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectionSetupRequestError(setup),
        },
    )) = &error
    else {
        return failed(error);
    };
    match &setup.error {
        SetupErrorKind::MissingAuthentication => CassandraOpenError::NeedsPassword,
        SetupErrorKind::DbError(DbError::AuthenticationError, reason) => {
            CassandraOpenError::WrongPassword(reason.clone())
        }
        _ => failed(error),
    }
}

pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> CassandraOpenError {
    CassandraOpenError::Cluster(Box::new(error))
}

fn check_data_center(
    session: &Session,
    settings: &CassandraSettings,
) -> Result<(), CassandraOpenError> {
    let state = session.get_cluster_state();
    let nodes = state.get_nodes_info().iter();
    let mut known: Vec<&str> = nodes
        .filter_map(|node| node.datacenter.as_deref())
        .collect();
    known.sort_unstable();
    known.dedup();
    if known.contains(&&*settings.data_center) {
        return Ok(());
    }
    Err(CassandraOpenError::NoSuchDataCenter {
        name: settings.data_center.clone(),
        known: known.join(", "),
    })
}

async fn make_tables(
    session: &Session,
    settings: &CassandraSettings,
) -> Result<(), CassandraOpenError> {
    let CassandraSettings {
        keyspace,
        data_center,
        replication,
        ..
    } = settings;
    let text = format!(
        "create keyspace if not exists \"{keyspace}\" with replication = \
         {{'class': 'NetworkTopologyStrategy', '{data_center}': {replication}}}"
    );
    session.query_unpaged(text, ()).await.map_err(failed)?;
    for (name, columns) in TABLES {
        let with = if columns.contains(" with ") {
            "and"
        } else {
            "with"
        };
        let text = format!(
            "create table if not exists \"{keyspace}\".{name} {columns} {with} speculative_retry = '{HEDGE}' and id = '{}'",
            id_of(keyspace, name)
        );
        session.query_unpaged(text, ()).await.map_err(failed)?;
    }
    session.await_schema_agreement().await.map_err(failed)?;
    check_layout(session, settings).await
}

/// Returns the id of a table, from its name alone. The nodes would give a table two ids if two processes make it at the
/// same time, and not agree any more.
fn id_of(keyspace: &str, table: &str) -> String {
    let name = format!("{keyspace} {table} {FORMAT}");
    let hex = format!("{:032x}", xxh3_128(name.as_bytes()));
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// Refuses to use rows that another number of shards or buckets, or another version, has laid out.
async fn check_layout(
    session: &Session,
    settings: &CassandraSettings,
) -> Result<(), CassandraOpenError> {
    let instance = settings.instance.cast_signed();
    let wanted: [i32; 2] = [settings.shards.into(), settings.buckets.into()];
    let layout = format!("\"{}\".layout", settings.keyspace);
    let check = |what, whose, there: i32, wanted: i32| {
        if there == wanted {
            return Ok(());
        }
        Err(CassandraOpenError::OtherLayout {
            keyspace: settings.keyspace.clone(),
            what,
            there,
            whose,
            wanted,
        })
    };
    // All instances share the tables, so the format is the same for all.
    let text = format!("select format from {layout}");
    let answer = session.query_unpaged(text, ()).await;
    let rows = answer.map_err(failed)?.into_rows_result().map_err(failed)?;
    for row in rows.rows::<(i32,)>().map_err(failed)? {
        let (format,) = row.map_err(failed)?;
        check("format", "this version reads", format, FORMAT)?;
    }
    let text = format!(
        "insert into {layout} (instance, format, shards, buckets) values (?, ?, ?, ?) if not exists"
    );
    let values = (instance, FORMAT, wanted[0], wanted[1]);
    session.query_unpaged(text, values).await.map_err(failed)?;
    let text = format!("select shards, buckets from {layout} where instance = ?");
    let answer = session.query_unpaged(text, (instance,)).await;
    let rows = answer.map_err(failed)?.into_rows_result().map_err(failed)?;
    let (shards, buckets) = rows.first_row::<(i32, i32)>().map_err(failed)?;
    check("shards", "the settings say", shards, wanted[0])?;
    check("buckets", "the settings say", buckets, wanted[1])
}

/// Returns when the nodes answer a write: the setting `commitlog_sync` of one of them.
pub(crate) async fn commit_log_of(session: &Session) -> Result<Box<str>, CassandraOpenError> {
    let text = "select value from system_views.settings where name = 'commitlog_sync'";
    let answer = session.query_unpaged(text, ()).await.map_err(failed)?;
    let rows = answer.into_rows_result().map_err(failed)?;
    let row = rows
        .maybe_first_row::<(Option<String>,)>()
        .map_err(failed)?;
    Ok(row
        .and_then(|(value,)| value)
        .unwrap_or_else(|| "unknown".to_owned())
        .into())
}
