//! Advice for each error code at the command line. Does not repeat what happened: the title and detail
//! contain that. A code without a remedy has no advice. There is no wildcard: a new code does not compile
//! without a decision here.

use umbo_api::ErrorCode;

/// Returns the advice for an error code; none if there is no remedy.
#[expect(
    clippy::too_many_lines,
    reason = "an arm for each code: a new one does not compile without a decision"
)]
pub(super) const fn of_code(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::AbnormalUsageDetected => {
            "find the callers that read or write the key so often; 'umbo hot ls' shows who blocked it"
        }
        ErrorCode::BatchTooLarge | ErrorCode::BodyTooLarge => {
            "send less in one request; 'umbo kv import' cuts a file of any size into batches"
        }
        ErrorCode::ClientClosed | ErrorCode::RequestTimeout => "try again",
        ErrorCode::DataDamaged => "restore the shard's file that the server's log names",
        ErrorCode::DeadlineBeforeStore => "give it more time with --timeout",
        ErrorCode::DeadlineInStore => {
            "give it more time with --timeout; if it was a write, read whether it was applied"
        }
        ErrorCode::DigestMismatch => {
            "send it again; if it keeps happening, something changes bytes on their way"
        }
        ErrorCode::LoadBuilding => {
            "'umbo version activate' or 'umbo load abort' ends the load that the answer names"
        }
        ErrorCode::VersionInUse
        | ErrorCode::VersionNotFound
        | ErrorCode::VersionNotReady
        | ErrorCode::VersionSuperseded => "'umbo version ls' lists the versions",
        ErrorCode::LoadLimit => "wait until a load has ended, or abort one of them",
        ErrorCode::OffsetMismatch => "continue the upload where the answer says",
        ErrorCode::PartDiffers => "abort the load and begin again, or send the file as it was",
        ErrorCode::PartsMissing => {
            "upload the parts that the answer names, then seal the load again"
        }
        ErrorCode::Forbidden => "ask for a token with this permission, and send it with --token",
        ErrorCode::ForeignHost => {
            "name the server by its address, or list the name in its setting server.hosts"
        }
        ErrorCode::HotKeyListed => {
            "'umbo hot ls --listed' shows how it is listed, and --update changes that"
        }
        ErrorCode::HotKeyNotListed | ErrorCode::HotListFull => {
            "'umbo hot ls --listed' shows what is pinned and what is blocked"
        }
        ErrorCode::HotKeysDisabled => "set hotkey.enabled to true and restart the server",
        ErrorCode::IdempotencyFull => "wait until older records run out, or keep new ones shorter",
        ErrorCode::Internal => "look for the request id in the server's log",
        ErrorCode::InvalidCursor => "run the command again from its start",
        ErrorCode::LastAdmin => "first create a token with --grant 'admin:*'",
        ErrorCode::MethodNotAllowed | ErrorCode::RouteNotFound => {
            "check that --server names an Umbo server of the version of this program"
        }
        ErrorCode::NamespaceBeingRemoved => {
            "bring the nodes of these shards back; 'umbo ns ls' shows how far the removal is"
        }
        ErrorCode::RecordNotFound => {
            "'umbo why --caller NAME' counts the refusals of a caller, also those without a record"
        }
        ErrorCode::RequestKilled => "ask the operator before you send it again",
        ErrorCode::RequestNotRunning => "'umbo ps' lists the requests that run",
        ErrorCode::RecordsStale | ErrorCode::RecordsUnavailable => {
            "'umbo shard ls' shows whether the home shard serves; its node's log has the reason"
        }
        ErrorCode::RecordsUnreadable => {
            "ask a server of the newest version, or start this one with it"
        }
        ErrorCode::PreconditionFailed => "read the row again and repeat the decision",
        ErrorCode::QuotaExceeded => {
            "wait as long as the answer says; if it keeps happening, ask for a larger quota"
        }
        ErrorCode::QuotaNotFound => "'umbo quota ls' lists the names",
        ErrorCode::ShardUnavailable => {
            "if it lasts, 'umbo shard ls' and the server's log show the reason"
        }
        ErrorCode::ShuttingDown => "try again once this server is back, or name another",
        ErrorCode::StorageFailed => "check the server's disk; its log names the shard",
        ErrorCode::StorageFull => "make room on the server's disk; writes then succeed again",
        ErrorCode::TokenNotFound => "'umbo token ls' lists the ids",
        ErrorCode::UploadGone => "send the value again",
        ErrorCode::AnswerMemoryFull
        | ErrorCode::BodyMemoryFull
        | ErrorCode::Overloaded
        | ErrorCode::TooManyReaders
        | ErrorCode::TooManyRequestsInFlight
        | ErrorCode::WriteQueueFull => "try again later, with fewer requests at a time",
        ErrorCode::Unauthenticated => "send a token with --token or UMBO_TOKEN",
        ErrorCode::NamespaceExists => "'umbo ns create --update' changes its settings",
        ErrorCode::QuotaExists => "'umbo quota set' reads a policy before it changes it",
        ErrorCode::UnboundedDelete => "name --start, --end or --prefix, or say --all",
        ErrorCode::BodyNotJson
        | ErrorCode::ForeignOrigin
        | ErrorCode::HeadersTooLarge
        | ErrorCode::IdempotencyMismatch
        | ErrorCode::IncrementOverflow
        | ErrorCode::InvalidBody
        | ErrorCode::RangeNotSatisfiable
        | ErrorCode::InvalidHeader
        | ErrorCode::InvalidKey
        | ErrorCode::InvalidQuery
        | ErrorCode::InvalidRequest
        | ErrorCode::KeyNotFound
        | ErrorCode::KeyTooLarge
        | ErrorCode::LoadNotFound
        | ErrorCode::LoadState
        | ErrorCode::NamespaceNotFound
        | ErrorCode::NotANumber
        | ErrorCode::NotAcceptable
        | ErrorCode::PartNotFound
        | ErrorCode::QuotaInvalid
        | ErrorCode::QuotaOfFile
        | ErrorCode::TokenOfFile
        | ErrorCode::UnsupportedCoding
        | ErrorCode::UnsupportedFormat
        | ErrorCode::UriTooLong
        | ErrorCode::ValueTooLarge => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_does_not_repeat_what_the_server_said() {
        for code in ErrorCode::ALL {
            if let Some(advice) = of_code(*code) {
                assert!(!code.meaning().contains(advice), "{code}");
                assert!(!advice.ends_with('.') && advice != code.title(), "{code}");
            }
        }
    }

    #[test]
    fn what_can_be_retried_is_never_without_advice() {
        for code in ErrorCode::ALL.iter().filter(|code| code.is_retryable()) {
            assert!(of_code(*code).is_some(), "{code}");
        }
    }
}
