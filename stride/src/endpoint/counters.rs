//! Port counters from sysfs. The folder `counters` contains the packet counters, and `hw_counters` contains those of
//! the driver.
//!
//! Each counter is a file that contains a number. The names that the user requests are compared with the names of
//! existing files, and never become part of a path.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PortInfo;
use crate::plan::ALL_COUNTERS;

/// Folders that contain counters, relative to the folder of the port.
const KINDS: [&str; 2] = ["counters", "hw_counters"];
/// Path of the file that contains the lifetime of cached values in milliseconds. Drivers may return cached values for
/// this time.
const LIFESPAN: &str = "hw_counters/lifespan";
/// Maximum time to wait for values that are not cached.
const MAX_LIFESPAN: Duration = Duration::from_secs(1);

/// The changes of counters by name, such as `hw_counters/out_of_buffer`. If only some ports of a side have counters,
/// each port without counters is listed by its own name, such as `mlx5_0/1`, with `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Changes(pub BTreeMap<String, Option<i64>>);

/// The changes of counters on both sides. A side that has no counters is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Changes on the client.
    pub client: Option<Changes>,
    /// Changes on the server.
    pub server: Option<Changes>,
}

impl Changes {
    /// Combines the changes on all ports of a side. If there are several ports, each name starts with device and port,
    /// as in `mlx5_0/1/counters/symbol_error`.
    pub(super) fn of_ports<'f>(ports: impl Iterator<Item = (&'f PortInfo, Option<Self>)>) -> Option<Self> {
        let mut ports: Vec<_> = ports.collect();
        if ports.len() < 2 {
            return ports.pop().and_then(|(_, changes)| changes);
        }
        if ports.iter().all(|(_, changes)| changes.is_none()) {
            return None;
        }
        let mut all = BTreeMap::new();
        for (port_info, changes) in ports {
            let port = format!("{}/{}", port_info.device, port_info.port);
            match changes {
                Some(Self(changes)) => {
                    all.extend(changes.into_iter().map(|(name, change)| (format!("{port}/{name}"), change)));
                }
                None => drop(all.insert(port, None)),
            }
        }
        Some(Self(all))
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no counter changed");
        }
        for (at, (name, change)) in self.0.iter().enumerate() {
            let gap = if at == 0 { "" } else { ", " };
            match change {
                Some(change) => write!(f, "{gap}{name} {change:+}")?,
                None => write!(f, "{gap}{name} has no counters")?,
            }
        }
        if self.0.values().all(Option::is_none) {
            f.write_str(", no other counter changed")?;
        }
        Ok(())
    }
}

/// Returns the requested counters, which must be among the existing ones in `there`.
///
/// # Errors
///
/// Returns an error that names the unknown counter and lists the existing ones.
pub(super) fn find(there: &[String], asked: &[String], owner: &str) -> Result<Vec<String>, String> {
    if asked == [ALL_COUNTERS] {
        return Ok(there.to_vec());
    }
    let mut found = Vec::new();
    for name in asked {
        let is_it = |full: &&String| *full == name || full.split_once('/').is_some_and(|(_, short)| short == name);
        let before = found.len();
        found.extend(there.iter().filter(is_it).cloned());
        if found.len() == before {
            let all = if there.is_empty() { "none at all".to_owned() } else { there.join(", ") };
            return Err(format!("--counters {name}: no such counter on {owner}; it has {all}"));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The requested counters of a port.
#[derive(Debug)]
pub(super) struct Counters {
    folder: PathBuf,
    names: Vec<String>,
    /// Whether all counters were requested. In this case, only the counters that changed are reported.
    is_all: bool,
    before: BTreeMap<String, i128>,
}

impl Counters {
    /// Opens the requested counters of a port, whose folder is `folder`. Returns `None` if no counter is requested, or
    /// if all counters are requested and the port has none.
    ///
    /// # Errors
    ///
    /// The same errors as [`find`].
    pub(super) fn open(folder: Option<PathBuf>, asked: &[String], owner: &str) -> Result<Option<Self>, String> {
        if asked.is_empty() {
            return Ok(None);
        }
        let folder = folder.unwrap_or_default();
        let names = find(&there(&folder), asked, owner)?;
        let is_all = asked == [ALL_COUNTERS];
        Ok((!names.is_empty()).then(|| Self { folder, names, is_all, before: BTreeMap::new() }))
    }

    /// Stores the current values, to which later changes are relative.
    pub(super) fn begin(&mut self) {
        self.before = self.now();
    }

    /// Returns the changes since [`begin`](Self::begin). Waits before it reads the values, so that the driver can
    /// update them.
    pub(super) fn changes(&self) -> Changes {
        if self.names.iter().any(|name| name.starts_with(KINDS[1])) {
            let milliseconds = number(&self.folder.join(LIFESPAN)).and_then(|number| u64::try_from(number).ok());
            thread::sleep(Duration::from_millis(milliseconds.unwrap_or(0)).min(MAX_LIFESPAN));
        }
        let changes = self.now().into_iter().filter_map(|(name, now)| {
            // If a counter was reset since then, its change is negative.
            let change = now - self.before.get(&name)?;
            Some((name, Some(i64::try_from(change).unwrap_or(i64::MAX))))
        });
        Changes(changes.filter(|(_, change)| !self.is_all || *change != Some(0)).collect())
    }

    fn now(&self) -> BTreeMap<String, i128> {
        let read = |name: &String| Some((name.clone(), number(&self.folder.join(name))?));
        self.names.iter().filter_map(read).collect()
    }
}

/// Returns the names of all counters that can be read.
fn there(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for kind in KINDS {
        let Ok(entries) = fs::read_dir(folder.join(kind)) else { continue };
        let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.extend(files.map(|file| format!("{kind}/{file}")));
    }
    names.retain(|name| name != LIFESPAN && number(&folder.join(name)).is_some());
    names.sort_unstable();
    names
}

fn number(file: &Path) -> Option<i128> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use sideway_test_names::Folder;

    use super::*;

    /// The folder of a port for a test.
    struct Port(Folder);

    impl Port {
        fn new() -> Self {
            let folder = Folder::new();
            for kind in KINDS {
                fs::create_dir_all(folder.join(kind)).unwrap();
            }
            let port = Self(folder);
            port.write("counters/port_xmit_data", "18446744073709551000");
            port.write("counters/port_rcv_errors", "N/A (no PMA)");
            port.write("counters/symbol_error", "5");
            port.write("hw_counters/out_of_buffer", "7");
            port.write("hw_counters/lifespan", "1");
            port
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.join(name), format!("{text}\n")).unwrap();
        }

        fn open(&self, asked: &[&str]) -> Result<Option<Counters>, String> {
            let asked: Vec<_> = asked.iter().map(|name| (*name).to_owned()).collect();
            Counters::open(Some(self.0.path().to_owned()), &asked, "port 1 of it")
        }
    }

    #[test]
    fn changes_are_reported_since_begin() {
        let port = Port::new();
        let mut named = port.open(&["symbol_error", "hw_counters/out_of_buffer"]).unwrap().unwrap();
        let mut all = port.open(&["all"]).unwrap().unwrap();
        named.begin();
        all.begin();
        assert_eq!(all.changes().to_string(), "no counter changed");
        port.write("counters/port_xmit_data", "18446744073709551615");
        port.write("hw_counters/out_of_buffer", "1");
        assert_eq!(named.changes().to_string(), "counters/symbol_error +0, hw_counters/out_of_buffer -6");
        assert_eq!(all.changes().to_string(), "counters/port_xmit_data +615, hw_counters/out_of_buffer -6");
        // A change counts only after the second call of `begin`.
        all.begin();
        port.write("counters/symbol_error", "6");
        assert_eq!(all.changes().to_string(), "counters/symbol_error +1");
        fs::remove_file(port.0.join("counters/symbol_error")).unwrap();
        assert_eq!(all.changes().to_string(), "no counter changed");
    }

    #[test]
    fn unknown_counter_error_lists_the_existing_ones() {
        let port = Port::new();
        let there = "counters/port_xmit_data, counters/symbol_error, hw_counters/out_of_buffer";
        for name in ["port_rcv_errors", "lifespan", "hw_counters/symbol_error", "../counters/symbol_error", "x", ""] {
            let error = port.open(&["symbol_error", name]).err();
            assert_eq!(error, Some(format!("--counters {name}: no such counter on port 1 of it; it has {there}")));
        }
        assert!(port.open(&[]).unwrap().is_none());
        let all = [ALL_COUNTERS.to_owned()];
        assert!(Counters::open(None, &all, "it").unwrap().is_none());
        let error = Counters::open(None, &["x".to_owned()], "it").err();
        assert_eq!(error.as_deref(), Some("--counters x: no such counter on it; it has none at all"));
    }

    #[test]
    fn counters_of_several_ports_have_a_port_prefix() {
        use crate::endpoint::fake::Fake;
        use crate::endpoint::{EndpointFactory, Role};
        use crate::plan::{Plan, SideConfig};
        let side = Fake::default().open(&Plan::default(), &SideConfig::default(), Role::Client).unwrap();
        let port_info = |port| PortInfo { port, ..side.port_info().clone() };
        let changes = |change| Some(Changes([("counters/symbol_error".to_owned(), Some(change))].into()));
        let of = |ports: &[(PortInfo, Option<Changes>)]| {
            Changes::of_ports(ports.iter().map(|(port_info, changes)| (port_info, changes.clone())))
                .map(|all| all.to_string())
        };
        assert_eq!(of(&[(port_info(1), changes(3))]).as_deref(), Some("counters/symbol_error +3"));
        let both = of(&[(port_info(1), changes(3)), (port_info(2), changes(0))]);
        let expected = "fake0/1/counters/symbol_error +3, fake0/2/counters/symbol_error +0";
        assert_eq!(both.as_deref(), Some(expected));
        let one = of(&[(port_info(1), None), (port_info(2), changes(1))]);
        assert_eq!(one.as_deref(), Some("fake0/1 has no counters, fake0/2/counters/symbol_error +1"));
        let unchanged = of(&[(port_info(1), None), (port_info(2), Some(Changes::default()))]);
        assert_eq!(unchanged.as_deref(), Some("fake0/1 has no counters, no other counter changed"));
        assert_eq!(of(&[(port_info(1), None), (port_info(2), None)]), None);
    }

    #[test]
    fn name_in_both_folders_selects_both() {
        let port = Port::new();
        port.write("hw_counters/symbol_error", "5");
        let counters = port.open(&["symbol_error", "counters/symbol_error"]).unwrap().unwrap();
        assert_eq!(counters.names, ["counters/symbol_error", "hw_counters/symbol_error"]);
    }
}
