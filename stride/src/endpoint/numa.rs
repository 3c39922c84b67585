//! Processors that are near a device, and the binding of threads to processors.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::plan::cpus;
use crate::thread::start_in;

/// The NUMA nodes of a machine, each with its number and its processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes(Vec<(u32, Vec<u32>)>);

impl Nodes {
    /// Returns the nodes of this machine, or no node if sysfs does not list them.
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
            // A node that has only memory has no list of processors.
            let list = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
            nodes.push((number, cpus::parse(list.trim()).unwrap_or_default()));
        }
        nodes.sort_unstable();
        Ok(Self(nodes))
    }

    /// Returns the nodes to which these processors belong. Each node is listed once.
    pub(super) fn of(&self, cpus: &[u32]) -> Vec<u32> {
        let has = |own: &[u32]| own.iter().any(|cpu| cpus.contains(cpu));
        self.0.iter().filter(|(_, own)| has(own)).map(|(node, _)| *node).collect()
    }

    /// Returns all processors of the nodes to which these processors belong. The list is empty if the machine has only
    /// one node with processors.
    pub(super) fn around(&self, cpus: &[u32]) -> Vec<u32> {
        let nodes = self.of(cpus);
        let of_these = |(node, _): &&(u32, Vec<u32>)| nodes.contains(node) && self.has_several();
        self.0.iter().filter(of_these).flat_map(|(_, own)| own).copied().collect()
    }

    fn has_several(&self) -> bool {
        self.0.iter().filter(|(_, own)| !own.is_empty()).count() > 1
    }

    /// Returns the processors to which threads are bound by default, which are those of the device's node. Returns
    /// `None` if the machine has only one node with processors, or if the device's node has none. Also returns `None`
    /// if the threads are already bound, which is the case if they may not run on all `online` processors.
    pub(super) fn bound(&self, node: Option<u32>, allowed: &[u32], online: &[u32]) -> Option<Vec<u32>> {
        let is_placed = online.is_empty() || online.iter().any(|cpu| !allowed.contains(cpu));
        let (_, own) = self.0.iter().find(|(number, own)| Some(*number) == node && !own.is_empty())?;
        (self.has_several() && !is_placed).then(|| own.clone())
    }

    /// Returns those processors of `among` that belong to the node, in the syntax of `--cpu`. The text is empty if
    /// there are none, or if the node is unknown.
    pub(super) fn near(&self, node: Option<u32>, among: &[u32]) -> String {
        let found = self.0.iter().find(|(number, _)| Some(*number) == node);
        let own = found.into_iter().flat_map(|(_, own)| own).copied();
        cpus::show(&own.filter(|cpu| among.contains(cpu)).collect::<Vec<_>>())
    }
}

/// Returns the processors that are online, or none if sysfs does not list them.
pub(super) fn online() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    cpus::parse(text.trim()).unwrap_or_default()
}

/// Returns the processors on which this thread may run.
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
    thread::scope(|scope| start_in(scope, || run_on(cpus).is_ok()).is_ok_and(|tried| tried.join().unwrap_or(false)))
}

/// Keeps this thread bound to some processors until it is dropped. Then the thread is bound as before.
#[derive(Debug)]
pub(super) struct Bound(Option<CpuSet>);

/// Binds this thread to these processors until the result is dropped. Does nothing if the list is empty, or if the
/// system rejects the binding.
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
            // Ignores the error. The thread was bound to these processors before, so this call does not fail.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Checks that threads can run on these processors, which the user gave with the option `named`.
///
/// # Errors
///
/// Returns an error for the user that contains the first processor on which no thread can run.
pub(super) fn check(cpus: &[u32], named: &str) -> Result<()> {
    let allowed = allowed();
    // Uses a separate thread, because binding a thread moves it to other processors.
    let tried = thread::scope(|scope| {
        let try_all = || cpus.iter().find_map(|cpu| run_on(&[*cpu]).err().map(|error| (*cpu, error)));
        anyhow::Ok(start_in(scope, try_all)?.join())
    });
    match tried? {
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

    /// Returns a machine that has two nodes with processors and one node that has only memory.
    fn machine() -> Nodes {
        let folder = sideway_test_names::Folder::new();
        for (node, list) in [("node1", "4-7,12-15\n"), ("node0", "0-3,8-11\n"), ("node2", "\n"), ("power", "x")] {
            fs::create_dir_all(folder.join(node)).unwrap();
            fs::write(folder.join(node).join("cpulist"), list).unwrap();
        }
        fs::write(folder.join("online"), "0-2\n").unwrap();
        Nodes::read(folder.path()).unwrap()
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
        assert_eq!(nodes.around(&[5]), [4, 5, 6, 7, 12, 13, 14, 15]);
        assert_eq!((nodes.around(&[0, 5]).len(), nodes.around(&[]).len(), nodes.around(&[99]).len()), (16, 0, 0));
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
        // Either taskset, numactl or a container has bound the process, or the system does not list its processors.
        assert_eq!(nodes.bound(Some(1), &all[..8], &all), None);
        assert_eq!(nodes.bound(Some(1), &second, &all), None);
        assert_eq!(nodes.bound(Some(1), &all, &[]), None);
        // The device has no node, its node has only memory, or its node is unknown.
        for none in [None, Some(2), Some(3)] {
            assert_eq!(nodes.bound(none, &all, &all), None);
        }
        let one = Nodes(vec![(0, all.clone()), (1, Vec::new())]);
        assert_eq!(one.bound(Some(0), &all, &all), None, "all is near");
        assert_eq!(one.around(&[5]), [0_u32; 0], "all is near");
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
