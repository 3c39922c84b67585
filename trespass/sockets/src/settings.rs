//! The environment variables.

use std::env;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// Which ports use RDMA: numbers and ranges, separated by commas.
const PORTS: &str = "TRESPASS_SOCKETS_PORTS";
/// What is added to a TCP port for the RDMA port.
const SHIFT: &str = "TRESPASS_SOCKETS_SHIFT";
/// Whether each connection prints a line.
const LOG: &str = "TRESPASS_SOCKETS_LOG";

#[derive(Debug, Default)]
pub(crate) struct Settings {
    ports: Option<Vec<RangeInclusive<u16>>>,
    shift: u16,
    logs: bool,
}

/// The settings of the process. The first socket that listens or connects reads them, also those of the devices in
/// software: some programs, such as nginx, clear their environment later.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        // The first connection reports an error.
        #[cfg(feature = "softrnic")]
        drop(softrnic::register());
        let shift = env::var(SHIFT).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let logs = env::var_os(LOG).is_some_and(|value| value != "0");
        Settings { ports: env::var(PORTS).ok().map(|text| ports(&text)), shift, logs }
    })
}

impl Settings {
    /// The RDMA port that belongs to a TCP port, if it has one.
    pub(crate) fn port(&self, tcp: u16) -> Option<u16> {
        let is_chosen = self.ports.as_ref().is_none_or(|ports| ports.iter().any(|range| range.contains(&tcp)));
        Some(tcp.wrapping_add(self.shift)).filter(|port| is_chosen && tcp != 0 && *port != 0)
    }

    /// Prints a line about a connection.
    #[expect(clippy::print_stderr, reason = "the user has asked for it")]
    pub(crate) fn log(&self, text: impl FnOnce() -> String) {
        if self.logs {
            eprintln!("trespass-sockets: {}", text());
        }
    }
}

fn ports(text: &str) -> Vec<RangeInclusive<u16>> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).collect()
}
