//! Which processors are near to a device.

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
    /// Those of this machine; none where its system does not say.
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
            // A node of memory alone has no processors.
            let list = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
            nodes.push((number, cpus::parse(list.trim()).unwrap_or_default()));
        }
        nodes.sort_unstable();
        Ok(Self(nodes))
    }

    /// The nodes of processors, each once.
    pub(super) fn of(&self, cpus: &[u32]) -> Vec<u32> {
        let has = |own: &[u32]| own.iter().any(|cpu| cpus.contains(cpu));
        self.0.iter().filter(|(_, own)| has(own)).map(|(node, _)| *node).collect()
    }

    /// The processors of a node that are among these, as `--cpu` takes them; empty where there are none, or the node is not known.
    pub(super) fn near(&self, node: Option<u32>, among: &[u32]) -> String {
        let found = self.0.iter().find(|(number, _)| Some(*number) == node);
        let own = found.into_iter().flat_map(|(_, own)| own).copied();
        cpus::show(&own.filter(|cpu| among.contains(cpu)).collect::<Vec<_>>())
    }
}

/// The processors where this thread may run.
pub(super) fn allowed() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

/// Has this thread run on one processor.
pub(super) fn pin(cpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Whether threads can run on these processors.
///
/// # Errors
///
/// A sentence for the user: the first one where none can.
pub(super) fn check(wanted: &[u32]) -> Result<()> {
    let allowed = allowed();
    // In a thread of its own, as it moves.
    let tried = thread::scope(|scope| {
        let try_all = || wanted.iter().find_map(|cpu| pin(*cpu).err().map(|error| (*cpu, error)));
        scope.spawn(try_all).join()
    });
    match tried {
        Ok(Some((cpu, error))) => Err(anyhow!(
            "no thread can run on processor {cpu}, which --cpu names: {error}; this process has {}",
            cpus::show(&allowed)
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with two nodes of processors and one of memory.
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
    fn nodes_of_processors_and_processors_of_nodes() {
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
    fn processors_that_are_not_there_are_named() {
        let allowed = allowed();
        assert!(!allowed.is_empty());
        check(&allowed).unwrap();
        let text = check(&[allowed[0], 60_000]).unwrap_err().to_string();
        assert!(text.starts_with("no thread can run on processor 60000, which --cpu names: "), "{text}");
    }
}
