//! Functions that parse the values of options.

use std::time::Duration;

use super::{GpuName, Memory, NoGpuName, cpus, size, time};

/// Parses a number of bytes or messages, with an optional suffix `k`, `K`, `M` or `G`.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    size::parse(text)
}

/// Parses a 32-bit number with an optional suffix `k`, `K`, `M` or `G`.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    u32::try_from(size::parse(text)?).map_err(|_| "too large".to_owned())
}

/// Parses a 32-bit number, which is decimal, or hexadecimal with `0x`.
pub(crate) fn hexadecimal(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "not a 32-bit number, such as 99 or 0x63".to_owned())
}

/// Parses a LID, which is decimal, or hexadecimal with `0x`.
pub(crate) fn lid(text: &str) -> Result<u16, String> {
    let number = hexadecimal(text).ok().and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| "not a 16-bit number, such as 19 or 0x13".to_owned())
}

/// Parses a time: a number of seconds, or a number with the unit `us`, `ms`, `s`, `m` or `h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    time::parse(text)
}

/// The value of `--duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Time(Duration),
    /// The test runs until the user ends it.
    Forever,
}

/// Parses a time, or the word `forever`.
pub(crate) fn length(text: &str) -> Result<Length, String> {
    match text {
        "forever" => Ok(Length::Forever),
        _ => duration(text).map(Length::Time).map_err(|why| format!("{why} (or `forever`)")),
    }
}

/// Parses the time between messages: a number of microseconds, or a number with a unit.
pub(crate) fn microseconds(text: &str) -> Result<Duration, String> {
    let bare = text.ends_with(|last: char| last.is_ascii_digit() || last == '.');
    if bare { duration(&format!("{text}us")) } else { duration(text) }
}

/// Parses a number above zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("not a number above 0".to_owned()),
    }
}

/// Parses the ratio of each size to the previous one.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 1.0 => Ok(factor),
        _ => Err("not a number above 1".to_owned()),
    }
}

/// A list of processors: numbers and ranges, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<u32>);

/// Parses a list of processors such as `0,2-5`.
pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    cpus::parse(text).map(Cpus)
}

/// Parses the name of a GPU, which is an index, or a PCI address such as `0000:3b:00.0`.
pub(crate) fn gpu(text: &str) -> Result<Memory, NoGpuName> {
    text.parse::<GpuName>().map(|_| Memory::Cuda(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_time_defaults_to_microseconds() {
        assert_eq!(microseconds("3.5"), Ok(Duration::from_nanos(3500)));
        assert_eq!(microseconds("1ms"), Ok(Duration::from_millis(1)));
    }

    #[test]
    fn lids_and_flow_labels_accept_hexadecimal() {
        assert_eq!([hexadecimal("99"), hexadecimal("0xfffff"), hexadecimal("0")], [Ok(99), Ok(0xfffff), Ok(0)]);
        assert_eq!([lid("19"), lid("0x13"), lid("65535")], [Ok(19), Ok(0x13), Ok(0xffff)]);
        for wrong in ["", "0x", "x1", "-1", "1k", "4294967296", "0x100000000"] {
            assert!(hexadecimal(wrong).is_err() && lid(wrong).is_err(), "{wrong}");
        }
        assert!(lid("65536").is_err());
    }
}
