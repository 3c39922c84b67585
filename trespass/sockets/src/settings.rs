//! The environment variables.

use std::env;
use std::fs;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// Which ports use RDMA: numbers and ranges, separated by commas.
const PORTS: &str = "TRESPASS_SOCKETS_PORTS";
/// What is added to a TCP port for the RDMA port.
const SHIFT: &str = "TRESPASS_SOCKETS_SHIFT";
/// Whether each connection prints a line.
const LOG: &str = "TRESPASS_SOCKETS_LOG";

/// The devices of softrnic if the variable names none.
#[cfg(feature = "softrnic")]
const DEFAULT_DEVICES: &str = "soft0,softiw0";

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
        let shift = env::var(SHIFT).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let logs = env::var_os(LOG).is_some_and(|value| value != "0");
        let mut settings = Settings { ports: env::var(PORTS).ok().map(|text| ports(&text)), shift, logs };
        let has_others = register(shift == 0);
        if shift == 0 && (!has_others || has_iwarp()) {
            settings.log(|| format!("TCP only: iWARP needs {SHIFT}"));
            settings.ports = Some(Vec::new());
        }
        settings
    })
}

/// Registers the devices in software, without those of iWARP if a connection attempt would reach the TCP server itself.
/// Returns false if none is left.
#[cfg(feature = "softrnic")]
fn register(skips_iwarp: bool) -> bool {
    let named = env::var(softrnic::DEVICES_VARIABLE).unwrap_or_default();
    let names = if named.trim().is_empty() { DEFAULT_DEVICES } else { &named };
    let is_iwarp = |name: &&str| name.trim().starts_with("softiw");
    // The first connection reports an error.
    if !skips_iwarp || !names.split(',').any(|name| is_iwarp(&name)) {
        drop(softrnic::register());
        return true;
    }
    let others: Vec<_> = names.split(',').filter(|name| !is_iwarp(name)).collect();
    let add = |builder: softrnic::Builder, name: &&str| builder.device(name.trim());
    drop(others.iter().fold(softrnic::Builder::new(), add).register());
    !others.is_empty()
}

#[cfg(not(feature = "softrnic"))]
fn register(_: bool) -> bool {
    true
}

/// Whether the system has a NIC for iWARP.
fn has_iwarp() -> bool {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let kind = |device: fs::DirEntry| fs::read_to_string(device.path().join("node_type"));
    devices.filter_map(|device| kind(device).ok()).any(|kind| kind.contains("RNIC"))
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
