//! The RDMA objects of processes in the kernel, from iproute2's `rdma resource`.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::device;

/// The kinds that are counted.
const KINDS: [&str; 6] = ["cm_id", "qp", "cq", "mr", "pd", "srq"];

/// The deadline for the kernel to release destroyed objects.
const PATIENCE: Duration = Duration::from_secs(60);

/// The RDMA objects of a process by kind, and its open files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    objects: BTreeMap<&'static str, usize>,
    files: usize,
}

impl Held {
    /// The current counts of this process.
    ///
    /// # Panics
    ///
    /// If the counts cannot be read.
    #[track_caller]
    pub fn now() -> Self {
        let files = fs::read_dir("/proc/self/fd").unwrap_or_else(|error| panic!("/proc/self/fd: {error}")).count();
        Self { objects: objects(), files }
    }

    /// How many objects of this kind: `cm_id`, `qp`, …
    pub fn count(&self, kind: &str) -> usize {
        self.objects.get(kind).copied().unwrap_or(0)
    }

    /// Asserts that this process returns to these counts, with some time for the kernel.
    ///
    /// # Panics
    ///
    /// If the counts stay different.
    #[track_caller]
    pub fn is_held_again(&self) {
        self.is_held_again_while(|| {});
    }

    /// Asserts that this process returns to these counts while `step` is called again and again, for example to read events.
    ///
    /// # Panics
    ///
    /// If the counts stay different.
    #[track_caller]
    pub fn is_held_again_while(&self, mut meanwhile: impl FnMut()) {
        let started = Instant::now();
        loop {
            meanwhile();
            let now = Self::now();
            if now == *self {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "before: {self:?}\nafter:  {now:?}\nopen:   {:?}", open_files());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The targets of this process's descriptors.
fn open_files() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    files.map(|file| file.display().to_string()).collect()
}

/// This process's objects on all devices, by kind.
#[track_caller]
fn objects() -> BTreeMap<&'static str, usize> {
    if device::is_soft() {
        // The kernel has no such device.
        return BTreeMap::new();
    }
    KINDS.into_iter().map(|kind| (kind, show(kind).lines().filter(|line| is_mine(line)).count())).collect()
}

/// The kernel names the thread that created an object; that thread may have ended. The kernel's own objects have no
/// thread.
fn is_mine(line: &str) -> bool {
    let Some(thread) = line.split_whitespace().skip_while(|word| *word != "pid").nth(1) else { return false };
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    process.and_then(|process| process.trim().parse().ok()) == Some(std::process::id())
}

/// Waits until an identifier listens on the port.
///
/// # Panics
///
/// If no identifier listens in time.
#[track_caller]
pub fn wait_for_listener(port: u16) {
    let started = Instant::now();
    if device::is_soft() {
        let is_port = |line: &str| {
            line.contains(" 00010000 ") && line.contains("@softrnic/1/cm/") && line.contains(&format!("/{port}/"))
        };
        while !fs::read_to_string("/proc/net/unix").is_ok_and(|list| list.lines().any(is_port)) {
            assert!(started.elapsed() < PATIENCE, "no listener on {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        return;
    }
    let source = format!(":{port}");
    while !show("cm_id").lines().any(|line| {
        let is_here = line
            .split_whitespace()
            .skip_while(|word| *word != "src-addr")
            .nth(1)
            .is_some_and(|at| at.ends_with(&source));
        is_here && line.contains("state LISTEN")
    }) {
        assert!(started.elapsed() < PATIENCE, "no listener on {port}:\n{}", show("cm_id"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn show(kind: &str) -> String {
    let mut command = Command::new("rdma");
    command.args(["resource", "show", kind]);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
