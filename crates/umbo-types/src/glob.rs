//! Patterns: each `*` matches any run of bytes, including an empty one.
//!
//! Owns two functions: whether a pattern matches a text, and whether two patterns match a common text.
//! Deliberately supports no other shell syntax, and no literal `*`.

/// Returns whether a text matches. Linear in practice: only the last `*` is retried.
pub fn is_match(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((after_star, consumed)) = retry {
            retry = Some((after_star, consumed + 1));
            p = after_star;
            t = consumed + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Returns whether some text matches both patterns. Takes time in the product of their lengths.
pub fn is_overlap(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    // From the ends: `below[j]` is whether the rest of `one` after this byte and `other[j..]` have a text in
    // common. After the last byte of `one` only stars may be left of `other`.
    let mut below: Vec<bool> = (0..=other.len())
        .map(|at| other[at..].iter().all(|&byte| byte == b'*'))
        .collect();
    for (i, &byte) in one.iter().enumerate().rev() {
        let mut row = vec![false; other.len() + 1];
        row[other.len()] = one[i..].iter().all(|&byte| byte == b'*');
        for j in (0..other.len()).rev() {
            row[j] = match (byte, other[j]) {
                // A star ends here, or takes one more byte of the other pattern.
                (b'*', _) | (_, b'*') => below[j] || row[j + 1],
                (a, b) => a == b && below[j + 1],
            };
        }
        below = row;
    }
    below[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_a_shell_would() {
        let cases = [
            ("*", "anything", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abcd", false),
            ("a*b*c", "a-b-b-c", true),
            ("listing-*", "listing-", true),
            ("listing-*", "listings", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_overlap_where_a_text_matches_both() {
        let cases = [
            ("a*", "*b", true),
            ("a*", "b*", false),
            ("a", "a", true),
            ("a", "b", false),
            ("a", "", false),
            ("*", "", true),
            ("ab*", "abc", true),
            ("ab*", "a", false),
            ("a*c", "ab*", true),
            ("*a*", "*b*", true),
            ("x*ab", "x*ba", false),
        ];
        for (one, other, expected) in cases {
            assert_eq!(is_overlap(one, other), expected, "{one} {other}");
            assert_eq!(is_overlap(other, one), expected, "{other} {one}");
        }
    }

    /// A slow reference: tries each way in which a star can end.
    fn slow_match(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, _) => text.is_empty(),
            (Some((b'*', rest)), None) => slow_match(rest, text),
            (Some((b'*', rest)), Some((_, shorter))) => {
                slow_match(rest, text) || slow_match(pattern, shorter)
            }
            (Some((byte, rest)), Some((first, shorter))) => {
                byte == first && slow_match(rest, shorter)
            }
            (Some(_), None) => false,
        }
    }

    /// All texts of two letters up to a length.
    fn texts(len_max: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut from = 0;
        for _ in 0..len_max {
            let to = all.len();
            for at in from..to {
                all.push(format!("{}a", all[at]));
                all.push(format!("{}b", all[at]));
            }
            from = to;
        }
        all
    }

    proptest! {
        #[test]
        fn a_match_is_what_the_slow_twin_says(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            let slow = slow_match(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(is_match(&pattern, &text), slow);
        }

        /// Two patterns of four bytes that overlap do so in a text of at most eight.
        #[test]
        fn an_overlap_is_a_text_that_exists(one in "[ab*]{0,4}", other in "[ab*]{0,4}") {
            let both = |text: &String| is_match(&one, text) && is_match(&other, text);
            prop_assert_eq!(is_overlap(&one, &other), texts(8).iter().any(both));
        }
    }
}
