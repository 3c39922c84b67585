//! The numbers in environment variables. The library and `trespass-run` read them.

use std::ops::RangeInclusive;

/// Which ports use RDMA: numbers and ranges, separated by commas.
pub(crate) const PORTS: &str = "TRESPASS_SOCKETS_PORTS";
/// What is added to a TCP port for the RDMA port.
pub(crate) const SHIFT: &str = "TRESPASS_SOCKETS_SHIFT";

/// Reads a list of ports.
pub(crate) fn ports(text: &str) -> Result<Vec<RangeInclusive<u16>>, String> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
            .filter(|range: &RangeInclusive<u16>| !range.is_empty())
    };
    let ranges = text.split(',').map(|word| range(word).ok_or(word));
    ranges
        .collect::<Result<_, _>>()
        .map_err(|word| format!("{PORTS}: \"{word}\" is no port or range; set it to a list such as 80,8000-8010"))
}

/// Reads the distance of the ports.
pub(crate) fn shift(text: &str) -> Result<u16, String> {
    text.trim().parse().map_err(|_| format!("{SHIFT}: \"{text}\" is no number; set it to one from 0 to 65535"))
}
