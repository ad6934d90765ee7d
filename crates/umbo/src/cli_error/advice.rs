//! Advice for each error at the command line, listed in `advice.txt`.

const ADVICE: &str = include_str!("advice.txt");

/// Returns the advice for an error code, or for a failure of the client by its name; `None` if there is no remedy.
pub(super) fn of(name: &str) -> Option<&'static str> {
    listed(name).next().filter(|advice| *advice != "-")
}

/// Returns the entries of the list for a name.
fn listed(name: &str) -> impl Iterator<Item = &'static str> {
    let pairs = ADVICE.lines().filter_map(|line| line.split_once(": "));
    let own = pairs.filter(move |(names, _)| names.split(' ').any(|one| one == name));
    own.map(|(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_api::ErrorCode;

    #[test]
    fn every_code_is_listed_once() {
        for code in ErrorCode::ALL {
            assert_eq!(
                listed(code.as_str()).count(),
                1,
                "{code}: give it advice, or '-'"
            );
        }
    }

    #[test]
    fn advice_does_not_repeat_what_the_server_said() {
        for code in ErrorCode::ALL {
            if let Some(advice) = of(code.as_str()) {
                assert!(!code.meaning().contains(advice), "{code}");
                assert!(!advice.ends_with('.') && advice != code.title(), "{code}");
            }
        }
    }

    #[test]
    fn what_can_be_retried_is_never_without_advice() {
        for code in ErrorCode::ALL.iter().filter(|code| code.is_retryable()) {
            assert!(of(code.as_str()).is_some(), "{code}");
        }
    }

    #[test]
    fn every_name_in_the_code_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let mut names = 0;
        let mut folders = vec![std::path::PathBuf::from(folder)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(path).unwrap();
                for begin in [concat!(".advis", "ing(\""), concat!("advice::", "of(\"")] {
                    for rest in text.split(begin).skip(1) {
                        let name = rest.split('"').next().unwrap();
                        assert_eq!(listed(name).count(), 1, "{name}");
                        names += 1;
                    }
                }
            }
        }
        assert!(names > 15, "{names}");
    }
}
