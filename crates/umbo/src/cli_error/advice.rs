//! Advice for each error code at the command line, listed in `advice.txt`.

use umbo_api::ErrorCode;

const ADVICE: &str = include_str!("advice.txt");

/// Returns the advice for an error code, or `None` if there is no remedy.
pub(super) fn of_code(code: ErrorCode) -> Option<&'static str> {
    listed(code).next().filter(|advice| *advice != "-")
}

/// Returns the entries of the list for a code.
fn listed(code: ErrorCode) -> impl Iterator<Item = &'static str> {
    let pairs = ADVICE.lines().filter_map(|line| line.split_once(": "));
    let own = pairs.filter(move |(codes, _)| codes.split(' ').any(|one| one == code.as_str()));
    own.map(|(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once() {
        for code in ErrorCode::ALL {
            assert_eq!(listed(*code).count(), 1, "{code}: give it advice, or '-'");
        }
    }

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
