//! Processors near a device.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::plan::cpus;

/// The NUMA nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes(Vec<(u32, Vec<u32>)>);

impl Nodes {
    /// The nodes of this machine; none if sysfs has no list.
    pub(super) fn of_system() -> Self {
        Self::read(Path::new("/sys/devices/system/node")).unwrap_or_default()
    }

    fn read(folder: &Path) -> io::Result<Self> {
        let mut nodes = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<u32>().ok());
            let Some(number) = number else { continue };
            // A node with memory only has no processors.
            let list = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
            nodes.push((number, cpus::parse(list.trim()).unwrap_or_default()));
        }
        nodes.sort_unstable();
        Ok(Self(nodes))
    }

    /// The nodes of these processors, each once.
    pub(super) fn of(&self, cpus: &[u32]) -> Vec<u32> {
        let has = |own: &[u32]| own.iter().any(|cpu| cpus.contains(cpu));
        self.0.iter().filter(|(_, own)| has(own)).map(|(node, _)| *node).collect()
    }

    /// Returns the processors for threads that are not bound otherwise: those of the device's node. `None` if the
    /// machine has one node, if the device's node has no processors, or if the threads are bound already: they may not
    /// run on all `online` processors.
    pub(super) fn bound(&self, node: Option<u32>, allowed: &[u32], online: &[u32]) -> Option<Vec<u32>> {
        let has_several = self.0.iter().filter(|(_, own)| !own.is_empty()).count() > 1;
        let is_placed = online.is_empty() || online.iter().any(|cpu| !allowed.contains(cpu));
        let (_, own) = self.0.iter().find(|(number, own)| Some(*number) == node && !own.is_empty())?;
        (has_several && !is_placed).then(|| own.clone())
    }

    /// The processors of a node among these, in the syntax of `--cpu`. Empty if there are none or the node is unknown.
    pub(super) fn near(&self, node: Option<u32>, among: &[u32]) -> String {
        let found = self.0.iter().find(|(number, _)| Some(*number) == node);
        let own = found.into_iter().flat_map(|(_, own)| own).copied();
        cpus::show(&own.filter(|cpu| among.contains(cpu)).collect::<Vec<_>>())
    }
}

/// The processors that are online; none if sysfs has no list.
pub(super) fn online() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    cpus::parse(text.trim()).unwrap_or_default()
}

/// The processors on which this thread may run.
pub(super) fn allowed() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

/// Binds this thread to these processors.
pub(super) fn run_on(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu as usize >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(*cpu as usize);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Whether a thread can be bound to these processors.
pub(super) fn can_run_on(cpus: &[u32]) -> bool {
    thread::scope(|scope| scope.spawn(|| run_on(cpus).is_ok()).join()).unwrap_or(false)
}

/// Keeps this thread on some processors until dropped.
#[derive(Debug)]
pub(super) struct Bound(Option<CpuSet>);

/// Binds this thread to these processors until the result is dropped. Does nothing if there are none, or if the system
/// refuses.
pub(super) fn bind(cpus: &[u32]) -> Bound {
    if cpus.is_empty() {
        return Bound(None);
    }
    let before = sched_getaffinity(None).ok();
    Bound(before.filter(|_| run_on(cpus).is_ok()))
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // The thread ran on these processors before, so this does not fail.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Checks that threads can run on these processors, given with the option `named`.
///
/// # Errors
///
/// An error for the user with the first processor on which no thread can run.
pub(super) fn check(cpus: &[u32], named: &str) -> Result<()> {
    let allowed = allowed();
    // Uses a separate thread, because binding moves the thread to other processors.
    let tried = thread::scope(|scope| {
        let try_all = || cpus.iter().find_map(|cpu| run_on(&[*cpu]).err().map(|error| (*cpu, error)));
        scope.spawn(try_all).join()
    });
    match tried {
        Ok(Some((cpu, error))) => Err(anyhow!(
            "cannot bind a thread to processor {cpu} of {named}: {error}; choose from {}",
            cpus::show(&allowed)
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with two nodes of processors and one with memory only.
    fn machine() -> Nodes {
        let folder = std::env::temp_dir().join(format!("stride-nodes-{}", std::process::id()));
        for (node, list) in [("node1", "4-7,12-15\n"), ("node0", "0-3,8-11\n"), ("node2", "\n"), ("power", "x")] {
            fs::create_dir_all(folder.join(node)).unwrap();
            fs::write(folder.join(node).join("cpulist"), list).unwrap();
        }
        fs::write(folder.join("online"), "0-2\n").unwrap();
        let nodes = Nodes::read(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        nodes
    }

    #[test]
    fn nodes_and_processors_map_to_each_other() {
        let nodes = machine();
        assert_eq!(nodes.of(&[0, 9]), [0]);
        assert_eq!(nodes.of(&[3, 4]), [0, 1]);
        assert_eq!(nodes.of(&[99]), [0_u32; 0]);
        let all: Vec<u32> = (0..16).collect();
        assert_eq!(nodes.near(Some(1), &all), "4-7,12-15");
        assert_eq!(nodes.near(Some(1), &[2, 6, 7]), "6-7");
        for none in [None, Some(2), Some(3)] {
            assert_eq!(nodes.near(none, &all), "");
        }
        assert!(Nodes::read(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn unbound_threads_use_the_node_of_the_device() {
        let nodes = machine();
        let all: Vec<u32> = (0..16).collect();
        let second = vec![4, 5, 6, 7, 12, 13, 14, 15];
        assert_eq!(nodes.bound(Some(1), &all, &all), Some(second.clone()));
        // The process is bound by taskset, numactl or a container; or the system has no list.
        assert_eq!(nodes.bound(Some(1), &all[..8], &all), None);
        assert_eq!(nodes.bound(Some(1), &second, &all), None);
        assert_eq!(nodes.bound(Some(1), &all, &[]), None);
        // A device without a node, on a node with memory only, and on an unknown node.
        for none in [None, Some(2), Some(3)] {
            assert_eq!(nodes.bound(none, &all, &all), None);
        }
        let one = Nodes(vec![(0, all.clone()), (1, Vec::new())]);
        assert_eq!(one.bound(Some(0), &all, &all), None, "all is near");
        assert_eq!(Nodes::default().bound(Some(0), &all, &all), None);
    }

    #[test]
    fn thread_returns_to_its_processors() {
        thread::spawn(|| {
            let before = allowed();
            let bound = bind(&before[..1]);
            assert_eq!(allowed(), before[..1]);
            drop(bound);
            assert_eq!(allowed(), before);
            drop(bind(&[]));
            drop(bind(&[60_000]));
            assert_eq!(allowed(), before);
            assert!(can_run_on(&before) && !can_run_on(&[60_000]));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn missing_processor_error_names_it() {
        let allowed = allowed();
        assert!(!allowed.is_empty());
        check(&allowed, "--cpu").unwrap();
        let text = check(&[allowed[0], 60_000], "--remote-cpu").unwrap_err().to_string();
        assert!(text.starts_with("cannot bind a thread to processor 60000 of --remote-cpu: "), "{text}");
    }
}
