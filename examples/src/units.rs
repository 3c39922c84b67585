//! Values as users write them.

use std::time::Duration;

use sideway::ibverbs::device_context::Mtu;

/// A size in bytes, with the suffixes k, M and G for powers of 1024: `4096`, `64k`, `1M`.
///
/// # Errors
///
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a size is a number of bytes, or one with k, M or G behind it".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "the size does not fit 64 bits".to_owned())
}

/// The size of a message: 1 byte to 1 GiB.
///
/// # Errors
///
/// What is wrong with the text.
pub fn parse_message_size(text: &str) -> Result<u32, String> {
    const LARGEST: u64 = 1 << 30;
    match parse_size(text)? {
        size @ 1..=LARGEST => u32::try_from(size).map_err(|error| error.to_string()),
        _ => Err("a message has 1 byte to 1G".to_owned()),
    }
}

/// A path MTU in bytes.
///
/// # Errors
///
/// Which ones there are.
pub fn parse_mtu(text: &str) -> Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

/// A time in seconds, fractions allowed. 0 itself is no limit; a time too short to be counted is refused.
///
/// # Errors
///
/// What is wrong with the text.
pub fn parse_timeout(text: &str) -> Result<Timeout, String> {
    let seconds: f64 = text.parse().map_err(|_| "a time is a number of seconds".to_owned())?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    // The digits before the exponent tell, also where the number is too small for a floating-point one.
    let digits = text.split(['e', 'E']).next().unwrap_or(text);
    match time.is_zero() {
        true if digits.contains(|digit: char| matches!(digit, '1'..='9')) => {
            Err("a time is at least a nanosecond, or 0 for no limit".to_owned())
        }
        true => Ok(Timeout(None)),
        false => Ok(Timeout(Some(time))),
    }
}

/// How long to wait for a peer; `None` is without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout(pub Option<Duration>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64k"), Ok(65536));
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        assert_eq!(parse_size("2g"), Ok(2 << 30));
        for wrong in ["", "k", "-1", "1.5k", "1kB", "ź", "99999999999G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_has_at_least_a_byte() {
        assert_eq!(parse_message_size("1"), Ok(1));
        assert_eq!(parse_message_size("1G"), Ok(1 << 30));
        assert!(parse_message_size("0").is_err());
        assert!(parse_message_size("1025M").is_err());
    }

    #[test]
    fn mtus_are_those_of_the_specification() {
        assert_eq!(parse_mtu("1024"), Ok(Mtu::Mtu1024));
        assert!(parse_mtu("1500").is_err());
    }

    #[test]
    fn no_time_is_no_limit() {
        assert_eq!(parse_timeout("0"), Ok(Timeout(None)));
        assert_eq!(parse_timeout("1.5"), Ok(Timeout(Some(Duration::from_millis(1500)))));
        for wrong in ["-1", "nan", "inf", "x", "1e300"] {
            assert!(parse_timeout(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_zero_is_without_limit() {
        for zero in ["0", "0.0", "0e5", "-0"] {
            assert_eq!(parse_timeout(zero), Ok(Timeout(None)), "{zero}");
        }
        assert_eq!(parse_timeout("1e-9"), Ok(Timeout(Some(Duration::from_nanos(1)))));
        assert_eq!(parse_timeout("10"), Ok(Timeout(Some(Duration::from_secs(10)))));
        for wrong in ["1e-10", "0.0000000001", "1E-400", "-1", "nan", "inf"] {
            assert!(parse_timeout(wrong).is_err(), "{wrong}");
        }
    }
}
