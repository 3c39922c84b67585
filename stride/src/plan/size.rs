//! Parses and formats message sizes, and generates sweeps.

/// The size of the largest message that any transport supports: 2 GiB.
pub const LARGEST: u64 = 1 << 31;

/// Maximum number of sizes in a plan.
pub const MOST_SIZES: usize = 4096;

/// Parses a number with an optional suffix. `k` or `K`, `M` and `G` are powers of 1024, and so are `KiB`, `MiB` and
/// `GiB`.
///
/// # Errors
///
/// Returns the reason why the text is invalid.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.strip_suffix("iB").unwrap_or(suffix) {
        "" if suffix.is_empty() => 0,
        "k" | "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("unknown suffix {suffix:?}; use k or K, M and G, powers of 1024")),
    };
    let number: u64 = number.parse().map_err(|_| "not a number with the suffix k, K, M, G or none".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// Formats a size so that [`parse`] can read it. Uses the largest suffix that leaves an integer.
pub fn show(bytes: u64) -> String {
    for (shift, suffix) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Returns the sizes from `from` to `to`. Each size is the previous one times `factor`, rounded down, but at least one
/// byte larger than the previous one. The list has at most [`MOST_SIZES`] plus one sizes.
pub fn sweep(from: u64, to: u64, factor: f64) -> Vec<u64> {
    let next = |size: &u64| size.checked_add(1).map(|above| ((*size as f64 * factor) as u64).max(above));
    std::iter::successors(Some(from), next).take_while(|size| *size <= to).take(MOST_SIZES + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        let read = |text| parse(text).ok();
        assert_eq!(
            ["64", "4K", "4k", "1M", "2G", "8KiB"].map(read),
            [64, 4096, 4096, 1 << 20, 2 << 30, 8192].map(Some)
        );
        for wrong in ["", "K", "-1", "1.5K", "4KB", "4T", "iB", "1iB", "99999999999G", "18446744073709551616"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn formatted_size_parses_back() {
        for size in [0, 1, 1023, 1024, 1536, 65536, 8 << 20, 3 << 30] {
            assert_eq!(parse(&show(size)), Ok(size));
        }
        assert_eq!(show(8 << 20), "8M");
    }

    #[test]
    fn sweep_is_finite() {
        assert_eq!(sweep(2, 8 << 20, 2.0).len(), 23);
        assert_eq!(sweep(1, 10, 1.5), [1, 2, 3, 4, 6, 9]);
        assert!(sweep(5, 4, 2.0).is_empty());
        assert_eq!(sweep(1, u64::MAX, 1.0).len(), MOST_SIZES + 1);
        assert!(sweep(1, u64::MAX, f64::INFINITY).len() <= 3);
    }
}
