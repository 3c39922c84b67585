//! Formats numbers with units.

/// Formats a message size such as `64`, `4 KiB` or `1 MiB`. The number has no unit if it is not a multiple of 1 KiB.
pub fn bytes(size: u64) -> String {
    let whole = |unit: u64| size >= unit && size.is_multiple_of(unit);
    match size {
        _ if whole(1 << 30) => format!("{} GiB", size >> 30),
        _ if whole(1 << 20) => format!("{} MiB", size >> 20),
        _ if whole(1 << 10) => format!("{} KiB", size >> 10),
        _ => size.to_string(),
    }
}

/// Formats a message size with its unit, for use in sentences: `2 B`, `4 KiB`.
pub fn bytes_in_words(size: u64) -> String {
    let text = bytes(size);
    if text.ends_with('B') { text } else { text + " B" }
}

/// Formats a number in at most `width` characters, with as many decimals as fit. NaN becomes a dash.
pub fn fixed(value: f64, width: usize, decimals: usize) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    (0..=decimals)
        .rev()
        .map(|decimals| format!("{value:.decimals$}"))
        .find(|text| text.len() <= width)
        .unwrap_or_else(|| format!("{value:.1e}"))
}

/// Formats two numbers with three decimals, or with as many as they need to differ.
pub(super) fn apart(values: [f64; 2]) -> [String; 2] {
    let texts = |decimals: usize| values.map(|value| fixed(value, 17, decimals));
    (3..=15).map(texts).find(|[one, other]| one != other).unwrap_or_else(|| texts(3))
}

/// Formats an integer in at most `width` characters. A longer number is written in scientific notation.
pub(super) fn count(value: u64, width: usize) -> String {
    let text = value.to_string();
    if text.len() <= width { text } else { format!("{:.2e}", value as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        let of = [0, 2, 1000, 1023, 1024, 1536, 4096, 65_536, 1 << 20, 8 << 20, (1 << 20) + 1024, 1 << 30].map(bytes);
        let expected =
            ["0", "2", "1000", "1023", "1 KiB", "1536", "4 KiB", "64 KiB", "1 MiB", "8 MiB", "1025 KiB", "1 GiB"];
        assert_eq!(of, expected);
    }

    #[test]
    fn sizes_in_sentences_have_a_unit() {
        let of = [0, 2, 1023, 1024, 1536, 8 << 20].map(bytes_in_words);
        assert_eq!(of, ["0 B", "2 B", "1023 B", "1 KiB", "1536 B", "8 MiB"]);
    }

    #[test]
    fn decimals_are_dropped_to_fit() {
        assert_eq!(fixed(1.23456, 8, 3), "1.235");
        assert_eq!(fixed(12345.678, 8, 3), "12345.68");
        assert_eq!(fixed(12_345_678.0, 8, 3), "12345678");
        assert_eq!(fixed(1_234_567_890.0, 8, 3), "1.2e9");
        assert_eq!(fixed(f64::NAN, 8, 3), "-");
        assert_eq!(fixed(f64::INFINITY, 8, 3), "-");
    }

    #[test]
    fn close_numbers_differ() {
        assert_eq!(apart([150.0, 121.0179]), ["150.000", "121.018"]);
        assert_eq!(apart([0.25, 0.249_999_6]), ["0.2500000", "0.2499996"]);
        assert_eq!(apart([0.25, f64::NAN]), ["0.250", "-"]);
        assert_eq!(apart([0.25, 0.25]), ["0.250", "0.250"]);
    }

    #[test]
    fn counts_fit_their_width() {
        assert_eq!(count(5_000_000, 8), "5000000");
        assert_eq!(count(u64::MAX, 12), "1.84e19");
    }
}
