//! The token file: `[[token]]` entries in TOML, written by `umbo token create --file`.
//!
//! Invariant: a file is replaced as a whole or not at all. A file written here can be read only by
//! its owner. It holds no secret, but names the tokens that exist.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use umbo_api::admin::CreatedToken;
use umbo_types::Timestamp;

use super::error::AuthError;
use super::record::{CheckedToken, TokenRecord, TokenSource};

const OWNER_ONLY: u32 = 0o600;
const WORLD_READ: u32 = 0o004;
const WORLD_WRITE: u32 = 0o002;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries<T> {
    #[serde(default = "Vec::new")]
    token: Vec<T>,
}

/// Reads a token file. Refuses a file that everybody may write. Warns about a file that everybody
/// may read.
pub fn read_tokens(path: &Path) -> Result<Vec<TokenRecord>, AuthError> {
    let failed = |source| AuthError::File {
        path: path.to_owned(),
        source,
    };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & WORLD_WRITE != 0 {
        return Err(AuthError::WorldWritable {
            path: path.to_owned(),
        });
    }
    if mode & WORLD_READ != 0 {
        tracing::warn!(path = %path.display(), "the token file is readable by everyone; chmod 600 it");
    }
    parse(path, &fs::read_to_string(path).map_err(failed)?)
}

/// Reads the text of a token file. Errors name the entry by its number, from 1, and its name.
fn parse(path: &Path, text: &str) -> Result<Vec<TokenRecord>, AuthError> {
    let wrong = |reason: String| AuthError::NotTokens {
        path: path.to_owned(),
        reason,
    };
    let entries: Entries<toml::Table> =
        toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
    let mut records: Vec<TokenRecord> = Vec::with_capacity(entries.token.len());
    for (index, table) in entries.token.into_iter().enumerate() {
        let name = table
            .get("name")
            .and_then(toml::Value::as_str)
            .unwrap_or("no name");
        let place = format!("token {} ({name})", index + 1);
        let record: TokenRecord = table.try_into().map_err(|error: toml::de::Error| {
            wrong(format!("{place}: {}", error.to_string().trim_end()))
        })?;
        if records.iter().any(|other| other.id == record.id) {
            return Err(wrong(format!(
                "{place}: its id {} appears twice",
                record.id()
            )));
        }
        records.push(record);
    }
    Ok(records)
}

/// Makes a token and adds it to a file. Creates the file if it is missing, and keeps the rest of
/// its content, comments included. The first token of a file must hold `admin:*`.
pub fn append_token(
    path: &Path,
    new: &CheckedToken,
    now: Timestamp,
) -> Result<CreatedToken, AuthError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => {
            return Err(AuthError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    let existing = parse(path, &text)?;
    let (token, record) = new.create(now)?;
    if existing.is_empty() && !record.is_admin() {
        return Err(AuthError::FirstIsNoAdmin);
    }
    let info = record.info(TokenSource::File);
    let entry = toml::to_string(&Entries {
        token: vec![record],
    })
    .map_err(|error| AuthError::NotTokens {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let gap = match text.as_str() {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    replace(path, &format!("{text}{gap}{entry}")).map_err(|source| AuthError::File {
        path: path.to_owned(),
        source,
    })?;
    Ok(CreatedToken {
        token: token.to_string(),
        info,
    })
}

/// Replaces a file in one step: a reader sees the old or the new one, also after a crash.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let draft = folder.join(name);
    let written = write_draft(&draft, text).and_then(|()| fs::rename(&draft, path));
    if let Err(error) = written {
        // The draft may not even be there; the error that counts is the first one.
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

fn write_draft(draft: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(OWNER_ONLY);
    let mut file = options.open(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::super::TokenRegistry;
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(5_000);

    fn new(name: &str, grant: &str) -> CheckedToken {
        CheckedToken::check(&umbo_api::admin::NewToken {
            name: name.to_owned(),
            grants: vec![grant.to_owned()],
            criticality_max: None,
            ttl: None,
        })
        .unwrap()
    }

    #[test]
    fn tokens_made_in_a_file_are_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let refused = append_token(&path, &new("reader", "read:*"), NOW);
        assert!(matches!(refused, Err(AuthError::FirstIsNoAdmin)) && !path.exists());
        let admin = append_token(&path, &new("admin", "admin:*"), NOW).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("# ours\n{text}# end")).unwrap();
        let reader = append_token(&path, &new("reader", "read:*"), NOW).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(fs::read_to_string(&path).unwrap().starts_with("# ours\n"));
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "a draft was left"
        );

        let registry = TokenRegistry::new().unwrap();
        registry.replace(TokenSource::File, read_tokens(&path).unwrap());
        for created in [admin, reader] {
            let header = format!("Bearer {}", created.token);
            let caller = registry
                .authenticate(Some(header.as_bytes()), || NOW)
                .unwrap();
            assert_eq!(caller.id.as_str(), created.info.name);
        }
    }

    #[test]
    fn a_wrong_entry_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        append_token(&path, &new("admin", "admin:*"), NOW).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        for (text, expected) in [
            (
                good.replace("admin:*", "fly:*"),
                "token 1 (admin): grants: no such permission: 'fly'",
            ),
            (
                good.replace("salt = \"", "salt = \"!"),
                "token 1 (admin): salt: not base64url",
            ),
            (format!("{good}\n{good}"), "token 2 (admin): its id"),
            (format!("{good}\nextra = 1"), "unknown field `extra`"),
            ("token = 5".to_owned(), "invalid type"),
        ] {
            fs::write(&path, text).unwrap();
            let error = read_tokens(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("tokens.toml"), "{error}");
        }
        fs::write(&path, good).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o602)).unwrap();
        assert!(matches!(
            read_tokens(&path),
            Err(AuthError::WorldWritable { .. })
        ));
        let absent = read_tokens(&folder.path().join("absent"));
        assert!(matches!(absent, Err(AuthError::File { .. })));
    }
}
