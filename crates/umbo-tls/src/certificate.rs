//! The facts of an X.509 certificate that logs and errors contain: its subject and its validity.
//!
//! Parses DER by position (RFC 5280, section 4.1). Decides nothing: rustls verifies certificates; a
//! certificate that this file cannot parse merely has no subject and causes no warning.

/// Facts of one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Subject like `CN=shard-1,O=Umbo`, in the order of the certificate; parts of other kinds are
    /// left out.
    pub subject: String,
    /// First second of its validity, since the Unix epoch.
    pub not_before: u64,
    /// Last second of its validity, since the Unix epoch.
    pub not_after: u64,
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Parses a certificate. Returns `None` if it is not valid.
pub(super) fn read(der: &[u8]) -> Option<CertificateFacts> {
    let (_, certificate, _) = element(der)?;
    let (_, mut rest, _) = element(certificate)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    let rest = element(rest)?.2; // serial number
    let rest = element(rest)?.2; // signature algorithm
    let rest = element(rest)?.2; // issuer
    let (tag, validity, rest) = element(rest)?;
    let (_, subject, _) = element(rest)?;
    if tag != SEQUENCE {
        return None;
    }
    let (tag, not_before, after) = element(validity)?;
    let not_before = seconds(tag, not_before)?;
    let (tag, not_after, _) = element(after)?;
    Some(CertificateFacts {
        subject: name(subject)?,
        not_before,
        not_after: seconds(tag, not_after)?,
    })
}

/// Splits off the first element: its tag, its content, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if bytes.is_empty() || bytes.len() > 4 {
            return None;
        }
        let len = bytes
            .iter()
            .fold(0, |len, &byte| (len << 8) | usize::from(byte));
        (len, rest)
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

fn name(mut sets: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !sets.is_empty() {
        let (_, set, rest) = element(sets)?;
        sets = rest;
        let (_, attribute, _) = element(set)?;
        let (_, kind, after) = element(attribute)?;
        let (_, value, _) = element(after)?;
        // The arc 2.5.4 of the attribute types that names are made of.
        let kind = match kind {
            [0x55, 0x04, 3] => "CN",
            [0x55, 0x04, 6] => "C",
            [0x55, 0x04, 7] => "L",
            [0x55, 0x04, 8] => "ST",
            [0x55, 0x04, 10] => "O",
            [0x55, 0x04, 11] => "OU",
            _ => continue,
        };
        parts.push(format!("{kind}={}", String::from_utf8_lossy(value)));
    }
    Some(parts.join(","))
}

/// Parses `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`. Times before 1970 become 1970.
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"Z")?;
    let two = |at: usize| -> Option<i64> {
        let pair = digits.get(at..at + 2)?;
        let is_number = pair.iter().all(u8::is_ascii_digit);
        is_number.then(|| i64::from(pair[0] - b'0') * 10 + i64::from(pair[1] - b'0'))
    };
    let (year, at) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = two(0)?;
            (
                if year < 50 {
                    2_000 + year
                } else {
                    1_900 + year
                },
                2,
            )
        }
        (GENERALIZED_TIME, 14) => (two(0)? * 100 + two(2)?, 4),
        _ => return None,
    };
    let (month, day) = (two(at)?, two(at + 2)?);
    let (hour, minute, second) = (two(at + 4)?, two(at + 6)?, two(at + 8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since the epoch, counted in years that begin in March, so that leap days come last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_certificate_tells_its_subject_and_its_time() {
        let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, "shard-1");
        parameters
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "Umbo");
        parameters.not_before = rcgen::date_time_ymd(1999, 12, 31);
        parameters.not_after = rcgen::date_time_ymd(2096, 2, 29);
        let key = rcgen::KeyPair::generate().unwrap();
        let facts = read(parameters.self_signed(&key).unwrap().der()).unwrap();
        assert_eq!(facts.subject, "CN=shard-1,O=Umbo");
        assert_eq!(facts.not_before, 946_598_400);
        assert_eq!(facts.not_after, 3_981_312_000);
    }

    proptest! {
        #[test]
        fn whatever_arrives_is_read_or_refused(der in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&der);
        }
    }
}
