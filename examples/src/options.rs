//! Values of the command line, and options of many programs.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use sideway::ibverbs::device_context::Mtu;

use crate::LocalPort;

/// How long to wait; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout(pub Option<Duration>);

/// The size of a message: 1 byte to 1 GiB, with the suffixes k, M and G for powers of 1024, such as `64k`.
///
/// # Errors
///
/// The text is not such a size.
pub fn parse_message_size(text: &str) -> Result<u32, String> {
    const LARGEST: u64 = 1 << 30;
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number of bytes with the suffix k, M, G or none")?;
    match number.checked_mul(unit) {
        Some(size @ 1..=LARGEST) => u32::try_from(size).map_err(|error| error.to_string()),
        _ => Err("a message can have 1 byte to 1G".to_owned()),
    }
}

/// A path MTU in bytes.
///
/// # Errors
///
/// The text is not such an MTU.
pub fn parse_mtu(text: &str) -> Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "a path MTU can be 256, 512, 1024, 2048 or 4096".to_owned())
}

/// A time in seconds, with fractions. 0 means no limit; any other time has at least a nanosecond.
///
/// # Errors
///
/// The text is not such a time.
pub fn parse_timeout(text: &str) -> Result<Timeout, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    // The digits distinguish 0 from a number that is too small for a Duration or a floating-point number.
    let digits = text.split(['e', 'E']).next().unwrap_or(text);
    match time.is_zero() {
        true if digits.contains(|digit: char| matches!(digit, '1'..='9')) => {
            Err("below a nanosecond; give 0 for no limit".to_owned())
        }
        true => Ok(Timeout(None)),
        false => Ok(Timeout(Some(time))),
    }
}

// Device, port and GID.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would print the text as the description of the program")]
pub struct PortChoice {
    /// RDMA device, such as mlx5_0 [default: the first with an active port]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub ib_dev: Option<String>,

    /// Port of the device, from 1
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1)]
    pub ib_port: u8,

    /// GID index, see show_gids [default: on Ethernet, RoCE v2 with IPv4 first]
    #[arg(short = 'g', long, value_name = "INDEX")]
    pub gid_idx: Option<u32>,
}

impl PortChoice {
    /// Opens the device and checks that the port is active.
    ///
    /// # Errors
    ///
    /// As [`LocalPort::open`].
    pub fn open(&self) -> Result<LocalPort> {
        LocalPort::open(self, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_sizes_have_suffixes_and_bounds() {
        for (text, size) in [("1", 1), ("4096", 4096), ("64k", 65536), ("64K", 65536), ("1M", 1 << 20), ("1g", 1 << 30)]
        {
            assert_eq!(parse_message_size(text), Ok(size));
        }
        for wrong in ["", "k", "-1", "1.5k", "1kB", "ź", "0", "1025M", "99999999999G"] {
            assert!(parse_message_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mtus_are_those_of_the_specification() {
        assert_eq!(parse_mtu("1024"), Ok(Mtu::Mtu1024));
        assert!(parse_mtu("1500").is_err());
    }

    #[test]
    fn only_a_time_of_zero_is_without_limit() {
        for zero in ["0", "0.0", "0e5", "-0"] {
            assert_eq!(parse_timeout(zero), Ok(Timeout(None)), "{zero}");
        }
        assert_eq!(parse_timeout("1e-9"), Ok(Timeout(Some(Duration::from_nanos(1)))));
        assert_eq!(parse_timeout("1.5"), Ok(Timeout(Some(Duration::from_millis(1500)))));
        for wrong in ["1e-10", "0.0000000001", "1E-400", "-1", "nan", "inf", "x", "1e300"] {
            assert!(parse_timeout(wrong).is_err(), "{wrong}");
        }
    }
}
