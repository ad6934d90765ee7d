//! Query parameters: each known, given once, and of the right kind, or refused by name.

use bytes::Bytes;
use umbo_api::path::KeyEncoding;
use umbo_types::limits;

use crate::fields::parse_number;
use crate::request_error::{KeyPart, RequestError};

/// The parameters of a request.
#[derive(Debug)]
pub struct Query<'a> {
    pairs: Vec<(&'a str, ParameterValue<'a>)>,
    known: &'static str,
}

/// The value of a parameter.
#[derive(Debug, Clone, Copy)]
enum ParameterValue<'a> {
    /// Nothing: a bare name.
    Bare,
    /// The text after the equals sign.
    Text(&'a [u8]),
}

impl<'a> Query<'a> {
    /// Splits a query; `known` lists the route's parameters, separated by `", "`.
    pub fn read(query: Option<&'a str>, known: &'static str) -> Result<Self, RequestError> {
        let mut pairs: Vec<(&str, ParameterValue<'_>)> = Vec::new();
        for pair in query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
        {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, ParameterValue::Text(value.as_bytes())),
                None => (pair, ParameterValue::Bare),
            };
            if !is_known(known, name) {
                return Err(RequestError::UnknownParameter {
                    name: name.to_owned(),
                    known,
                });
            }
            if pairs.iter().any(|&(other, _)| other == name) {
                return Err(RequestError::RepeatedParameter {
                    name: name.to_owned(),
                });
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs, known })
    }

    fn find(&self, name: &'static str) -> Option<ParameterValue<'a>> {
        debug_assert!(is_known(self.known, name), "{name} is not known");
        self.pairs
            .iter()
            .find(|&&(other, _)| other == name)
            .map(|&(_, value)| value)
    }

    fn get(&self, name: &'static str) -> Option<&'a [u8]> {
        self.find(name).map(|written| match written {
            ParameterValue::Bare => &b""[..],
            ParameterValue::Text(text) => text,
        })
    }

    /// Returns the encoding of the keys in this request.
    pub fn key_encoding(&self) -> Result<KeyEncoding, RequestError> {
        match self.get("enc") {
            None | Some(b"percent") => Ok(KeyEncoding::Percent),
            Some(b"b64u") => Ok(KeyEncoding::Base64Url),
            Some(value) => Err(bad("enc", value, "percent or b64u")),
        }
    }

    /// Returns a key-typed parameter.
    pub fn key(
        &self,
        name: &'static str,
        part: KeyPart,
        encoding: KeyEncoding,
    ) -> Result<Option<Bytes>, RequestError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let bytes = encoding
            .decode(text)
            .map_err(|problem| RequestError::BadKeyText { part, problem })?;
        if bytes.len() > limits::SORT_KEY_LEN_MAX {
            return Err(umbo_types::KeyError::SortTooLong(bytes.len()).into());
        }
        Ok(Some(bytes.into()))
    }

    /// Returns a number within bounds.
    pub fn number(
        &self,
        name: &'static str,
        bounds: std::ops::RangeInclusive<u64>,
        expected: &'static str,
    ) -> Result<Option<u64>, RequestError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = parse_number(value);
        let number = number.filter(|number| bounds.contains(number));
        number.map(Some).ok_or_else(|| bad(name, value, expected))
    }

    /// Returns a flag: absent is false, its bare name true. `name=` is neither, because it comes from a variable
    /// that is not set.
    pub fn flag(&self, name: &'static str) -> Result<bool, RequestError> {
        match self.find(name) {
            None | Some(ParameterValue::Text(b"false")) => Ok(false),
            Some(ParameterValue::Bare | ParameterValue::Text(b"true")) => Ok(true),
            Some(ParameterValue::Text(value)) => Err(bad(name, value, "true or false")),
        }
    }

    /// Returns a parameter as it was sent.
    pub fn text(&self, name: &'static str) -> Option<&'a [u8]> {
        self.get(name)
    }
}

/// Returns whether a name is in a list that `", "` separates.
fn is_known(known: &str, name: &str) -> bool {
    // By a byte, not by a text: the search for a text costs more than a whole short list.
    known.split(',').any(|known| known.trim_start() == name)
}

/// Makes the failure of a parameter with an unusable value.
pub fn bad(name: &'static str, value: &[u8], expected: &'static str) -> RequestError {
    let shown: String = String::from_utf8_lossy(value).chars().take(64).collect();
    RequestError::BadParameter {
        name,
        value: shown,
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Query<'_>, RequestError> {
        Query::read(Some(query), "limit, reverse, start, enc")
    }

    #[test]
    fn parameters_are_known_and_given_once() {
        assert!(matches!(
            read("limits=1"),
            Err(RequestError::UnknownParameter { .. })
        ));
        assert!(matches!(
            read("limit=1&limit=2"),
            Err(RequestError::RepeatedParameter { .. })
        ));
        assert!(read("").is_ok() && read("&&limit=1&").is_ok());
    }

    #[test]
    fn values_are_of_their_kind() {
        let number = |query: &str| read(query).unwrap().number("limit", 1..=9, "1 to 9");
        assert_eq!(number("limit=9").unwrap(), Some(9));
        for wrong in [
            "limit=0",
            "limit=10",
            "limit=",
            "limit=+1",
            "limit=1e0",
            "limit=-1",
        ] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        let flag = |query: &str| read(query).unwrap().flag("reverse");
        assert!(flag("reverse").unwrap() && flag("reverse=true").unwrap());
        assert!(!flag("").unwrap() && flag("reverse=1").is_err());
        assert!(flag("reverse=").is_err());
        let query = read("start=YQ&enc=b64u").unwrap();
        let encoding = query.key_encoding().unwrap();
        assert_eq!(
            query
                .key("start", KeyPart::Start, encoding)
                .unwrap()
                .unwrap(),
            "a"
        );
    }
}
