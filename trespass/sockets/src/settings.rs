//! The environment variables.

use std::env;
use std::fs;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::numbers::{PORTS, SHIFT, ports, shift};

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
        let mut settings = Settings { logs: env::var_os(LOG).is_some_and(|value| value != "0"), ..Settings::default() };
        let read = || -> Result<_, String> {
            let text = |name| env::var(name).ok();
            Ok((text(PORTS).map(|text| ports(&text)).transpose()?, text(SHIFT).map_or(Ok(0), |text| shift(&text))?))
        };
        match read() {
            Ok((ports, shift)) => (settings.ports, settings.shift) = (ports, shift),
            // `trespass-run` has refused it, unless the program has set it.
            Err(error) => {
                settings.log(|| format!("TCP only: {error}"));
                settings.ports = Some(Vec::new());
                return settings;
            }
        }
        let shift = settings.shift;
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
        tcp.checked_add(self.shift).filter(|_| is_chosen && tcp != 0)
    }

    /// Prints a line about a connection.
    #[expect(clippy::print_stderr, reason = "the user has asked for it")]
    pub(crate) fn log(&self, text: impl FnOnce() -> String) {
        if self.logs {
            eprintln!("trespass-sockets: {}", text());
        }
    }
}
