//! Amounts as text.

/// Returns an amount with at most three decimals.
pub(super) fn amount(amount: f64) -> String {
    let text = format!("{amount:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let texts = [0.0, -0.0001, 1.5, 1_000.0, -2.123_456, 1e9].map(amount);
        assert_eq!(texts, ["0", "0", "1.5", "1000", "-2.123", "1000000000"]);
    }
}
