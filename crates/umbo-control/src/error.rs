//! Why Umbo's own records cannot be used or changed.
//!
//! Deliberately knows no status and no header: `umbo-http` decides how it is answered. Every variant
//! says whether a change that failed this way took effect.

use std::sync::Arc;
use std::time::Duration;

use umbo_api::admin::CreatedToken;
use umbo_api::{ErrorCode, Outcome};
use umbo_loads::LoadError;
use umbo_store::StoreError;
use umbo_types::{ShardId, Version};

use crate::auth::AuthError;
use crate::datasets::VersionError;
use crate::hot_lists::error::HotKeyError;
use crate::policies::error::QuotaError;
use crate::records::Unreadable;
use crate::records::home::{ChangeError, HomeError};

/// Why a look at Umbo's own records, or a change of them, failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ControlError {
    /// No namespace has this name.
    #[error("there is no namespace '{name}'; create it with: umbo ns create {name}")]
    NamespaceNotFound {
        /// The name.
        name: String,
    },
    /// A namespace of this name exists and has other settings than those asked for.
    #[error(
        "namespace '{name}' exists, and its {difference}; PATCH changes settings, PUT with If-Match replaces them"
    )]
    NamespaceExists {
        /// The name.
        name: String,
        /// The setting that differs.
        difference: String,
    },
    /// The namespace is being removed.
    #[error("namespace '{name}' is being removed; {}", waiting_text(.waiting_for))]
    NamespaceBeingRemoved {
        /// The name.
        name: String,
        /// Shards that have not confirmed the removal.
        waiting_for: Vec<u16>,
    },
    /// The home of Umbo's own records cannot be asked now. Nothing was applied.
    #[error("the home of Umbo's own records, shard {shard}, is away: {reason}")]
    RecordsAway {
        /// The home shard.
        shard: ShardId,
        /// Why, for the operator.
        reason: String,
    },
    /// This version cannot read Umbo's own records.
    #[error("{0}")]
    RecordsUnreadable(#[from] Unreadable),
    /// The copy of Umbo's own records is too old to serve by.
    #[error(
        "Umbo's own records were last confirmed {} s ago; the limit is {} s (records.stale_max)",
        .age.as_secs(), .max.as_secs()
    )]
    RecordsStale {
        /// Time since they were last found equal to the records at home.
        age: Duration,
        /// How old they may be.
        max: Duration,
    },
    /// It is not known whether a token was made. The error tells the client the token, so that a lost token cannot
    /// lock it out.
    #[error("it is not known whether token '{}' was made: {source}", .token.info.id)]
    TokenUnknown {
        /// The token, should it have been made.
        token: Box<CreatedToken>,
        /// The failure.
        source: Box<Self>,
    },
    /// The caller could not be identified, or a token cannot be changed like this.
    #[error("{0}")]
    Auth(Arc<AuthError>),
    /// A policy cannot be changed like this.
    #[error("{0}")]
    Quota(Box<QuotaError>),
    /// A list of hot keys cannot be changed like this.
    #[error("{0}")]
    HotKey(#[from] HotKeyError),
    /// A load cannot be changed like this.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The dataset versions of the namespace do not allow it.
    #[error("{0}")]
    Version(#[from] VersionError),
    /// Shards have not confirmed that a version is being built, and would leave writes out of it; or they have not
    /// recorded the creation of the load, which holds their highest version at that time.
    #[error(
        "shards {} have not confirmed the load; create it again",
        .shards.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
    )]
    ShardsUnconfirmed {
        /// The shards.
        shards: Vec<u16>,
    },
    /// The condition of a change was false.
    #[error("the condition was false")]
    ConditionFailed {
        /// Version of the stored record.
        current: Option<Version>,
    },
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The home did not answer a write in time. It may take effect.
    #[error("shard {shard} did not answer within {} ms", .timeout.as_millis())]
    NoAnswer {
        /// The home shard.
        shard: ShardId,
        /// The time that it had.
        timeout: Duration,
    },
    /// A defect.
    #[error("internal error: {0}")]
    Internal(String),
}

impl ControlError {
    /// Returns whether the change took effect. Without a wildcard: a new variant has to say it.
    pub fn effect(&self) -> Outcome {
        match self {
            Self::Store(error) => match error.outcome() {
                umbo_store::Outcome::Applied => Outcome::Applied,
                umbo_store::Outcome::NotApplied => Outcome::NotApplied,
                umbo_store::Outcome::Unknown => Outcome::Unknown,
            },
            Self::NoAnswer { .. } | Self::TokenUnknown { .. } | Self::Internal(_) => {
                Outcome::Unknown
            }
            Self::NamespaceNotFound { .. }
            | Self::NamespaceExists { .. }
            | Self::NamespaceBeingRemoved { .. }
            | Self::RecordsAway { .. }
            | Self::RecordsUnreadable(_)
            | Self::RecordsStale { .. }
            | Self::Auth(_)
            | Self::Quota(_)
            | Self::HotKey(_)
            | Self::Load(_)
            | Self::Version(_)
            | Self::ShardsUnconfirmed { .. }
            | Self::ConditionFailed { .. } => Outcome::NotApplied,
        }
    }
}

fn waiting_text(waiting_for: &[u16]) -> String {
    match waiting_for {
        [] => "its name is free in a moment".to_owned(),
        shards => {
            let shards: Vec<_> = shards.iter().map(u16::to_string).collect();
            format!(
                "its name is free once shards {} have confirmed the removal",
                shards.join(", ")
            )
        }
    }
}

impl From<AuthError> for ControlError {
    fn from(error: AuthError) -> Self {
        Self::Auth(Arc::new(error))
    }
}

impl From<QuotaError> for ControlError {
    fn from(error: QuotaError) -> Self {
        Self::Quota(Box::new(error))
    }
}

impl From<HomeError> for ControlError {
    fn from(error: HomeError) -> Self {
        match error {
            HomeError::Away { shard, reason } => Self::RecordsAway { shard, reason },
            HomeError::Unreadable(error) => Self::RecordsUnreadable(error),
        }
    }
}

impl From<ChangeError> for ControlError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Conflict { shard } => Self::RecordsAway {
                shard,
                reason: "another dispatcher changed the records meanwhile".to_owned(),
            },
            ChangeError::Store(StoreError::Unavailable {
                shard,
                reason,
                outcome: umbo_store::Outcome::NotApplied,
            }) => Self::RecordsAway { shard, reason },
            ChangeError::Store(error) => Self::Store(error),
            ChangeError::NoAnswer { shard, timeout } => Self::NoAnswer { shard, timeout },
            ChangeError::Home(error) => error.into(),
        }
    }
}

impl VersionError {
    /// Returns the code under which a client hears of it.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Building { .. } => ErrorCode::LoadBuilding,
            Self::NotFound { .. } => ErrorCode::VersionNotFound,
            Self::Superseded { .. } | Self::NothingKept => ErrorCode::VersionSuperseded,
            Self::NotReady { .. } => ErrorCode::VersionNotReady,
            Self::InUse { .. } => ErrorCode::VersionInUse,
        }
    }
}
