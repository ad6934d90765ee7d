//! Why something about hot keys cannot be done. No message holds a key: keys are the customer's data.

use umbo_api::ErrorCode;
use umbo_api::hot::HotList;

/// Why an operation on the lists of hot keys was refused or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HotKeyError {
    /// The layer is turned off (`HotKeysDisabled`).
    #[error("hotkey.enabled is false in the settings of this server")]
    Disabled,
    /// The key is not on the list (`HotKeyNotListed`).
    #[error("this key is not {}", .0.as_str())]
    NotListed(HotList),
    /// The key is on the list already, for another reason or time (`HotKeyListed`).
    #[error(
        "this key is already {}, with another reason or duration; to replace the entry, send its ETag or * \
         in If-Match",
        .0.as_str()
    )]
    Listed(HotList),
    /// There is no room on the list (`HotListFull`).
    #[error("{max} keys are {}, the maximum; take one off the list first", .list.as_str())]
    TooMany {
        /// The list.
        list: HotList,
        /// How many there may be.
        max: usize,
    },
    /// The keys of the list are too long together (`HotListFull`).
    #[error("the keys that are {} have more than {max} bytes in all; take one off the list first", .list.as_str())]
    TooLong {
        /// The list.
        list: HotList,
        /// How many bytes there may be.
        max: usize,
    },
    /// An id that no key has (`InvalidKey`).
    #[error("invalid key id; GET /admin/v1/hot lists the ids")]
    BadId,
    /// The namespace of an id is no more (`NamespaceNotFound`).
    #[error("the namespace of this key has been removed")]
    NamespaceGone,
}

impl HotKeyError {
    /// Returns the code under which a client hears of it.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Disabled => ErrorCode::HotKeysDisabled,
            Self::NotListed(_) => ErrorCode::HotKeyNotListed,
            Self::Listed(_) => ErrorCode::HotKeyListed,
            Self::TooMany { .. } | Self::TooLong { .. } => ErrorCode::HotListFull,
            Self::BadId => ErrorCode::InvalidKey,
            Self::NamespaceGone => ErrorCode::NamespaceNotFound,
        }
    }
}
