//! Two network namespaces, which stand for two hosts without RDMA hardware.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sideway_test_names::unique;

use crate::requirements::may_not_run;

/// Two hosts with a cable between them. Dropping the value removes both hosts.
#[derive(Debug)]
pub struct Hosts {
    /// The names of the network namespaces; `None` is the one of this process.
    names: [Option<String>; 2],
    interfaces: [String; 2],
    cable: Option<Cable>,
}

/// The thread that delays and drops frames, and its stop flag.
#[derive(Debug)]
struct Cable {
    thread: JoinHandle<()>,
    has_ended: Arc<AtomicBool>,
}

impl Hosts {
    /// The hosts' addresses.
    pub const ADDRESSES: [&str; 2] = ["10.71.9.1", "10.71.9.2"];

    /// Returns `None`, and reports that the test did not run, if this user cannot create network namespaces.
    #[must_use]
    pub fn new() -> Option<Self> {
        Self::made(namespaces(), Self::link)
    }

    /// Like [`new`](Self::new), but host 1 is the namespace of this process. rdma_rxe has no other one before Linux 6.14.
    #[must_use]
    pub fn beside_this() -> Option<Self> {
        let [first, _] = namespaces();
        Self::made([first, None], Self::link)
    }

    /// Like [`new`](Self::new), with a cable that delays each frame and drops `lost` of 1,000. A thread of this process
    /// carries the frames, because not every kernel has netem.
    #[must_use]
    pub fn with_bad_cable(delay: Duration, lost: u64) -> Option<Self> {
        Self::made(namespaces(), |hosts| {
            let mut ends = Vec::new();
            for (host, interface) in hosts.names.iter().zip(&hosts.interfaces) {
                // A name in the namespace of this program, in which tests of other programs create interfaces too.
                let name = unique("bad");
                ends.push(tap(&name).ok()?);
                ip(&format!("link set {name} netns {} name {interface}", host.as_deref()?)).then_some(())?;
            }
            let ends: [File; 2] = ends.try_into().ok()?;
            let has_ended = Arc::new(AtomicBool::new(false));
            let ended = Arc::clone(&has_ended);
            let thread = thread::spawn(move || carry(&ends, delay, lost, &ended));
            Some(Some(Cable { thread, has_ended }))
        })
    }

    /// Connects the hosts by a pair of interfaces.
    fn link(&self) -> Option<Option<Cable>> {
        let [a, b] = [0, 1].map(|host| {
            let place = self.names[host].as_ref().map_or_else(String::new, |name| format!(" netns {name}"));
            format!("{}{place}", self.interfaces[host])
        });
        ip(&format!("link add {a} type veth peer name {b}")).then_some(None)
    }

    /// `connect` creates the interfaces of both hosts.
    fn made(names: [Option<String>; 2], connect: impl FnOnce(&Self) -> Option<Option<Cable>>) -> Option<Self> {
        let interface = |name: &Option<String>| if name.is_some() { "v0".to_owned() } else { unique("v") };
        let interfaces = [interface(&names[0]), interface(&names[1])];
        let mut hosts = Self { names, interfaces, cable: None };
        let mut is_made = hosts.names.iter().flatten().all(|host| ip(&format!("netns add {host}")));
        if is_made {
            let cable = connect(&hosts);
            is_made = cable.is_some();
            hosts.cable = cable.flatten();
        }
        for (host, address) in Self::ADDRESSES.iter().enumerate() {
            let interface = &hosts.interfaces[host];
            is_made = is_made
                && hosts.ip(host, &format!("addr add {address}/24 dev {interface}"))
                && hosts.ip(host, "link set lo up")
                && hosts.ip(host, &format!("link set {interface} up"));
        }
        if !is_made {
            may_not_run("this user cannot create network namespaces");
        }
        is_made.then_some(hosts)
    }

    /// Runs `ip` on one of the hosts.
    fn ip(&self, host: usize, arguments: &str) -> bool {
        let place = self.names[host].as_ref().map_or_else(String::new, |name| format!("-n {name} "));
        ip(&format!("{place}{arguments}"))
    }

    /// The interface of a host.
    #[must_use]
    pub fn interface(&self, host: usize) -> &str {
        &self.interfaces[host]
    }

    /// The name of a host's network namespace, or `None` if it is the one of this process.
    #[must_use]
    pub fn namespace(&self, host: usize) -> Option<&str> {
        self.names[host].as_deref()
    }

    /// A command on one of the hosts; append its arguments.
    #[must_use]
    pub fn command(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let Some(name) = &self.names[host] else { return Command::new(program) };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name]).arg(program);
        command
    }

    /// Plugs the cable of a host in, or pulls it out. Without the cable, the hosts cannot reach each other, and neither
    /// is notified.
    ///
    /// # Panics
    ///
    /// If the kernel does not change the interface.
    pub fn plug(&self, host: usize, is_in: bool) {
        let state = if is_in { "up" } else { "down" };
        assert!(self.ip(host, &format!("link set {} {state}", self.interfaces[host])), "the cable is stuck");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Some(cable) = self.cable.take() {
            cable.has_ended.store(true, Ordering::Relaxed);
            let _ = cable.thread.join();
        }
        for host in self.names.iter().flatten() {
            ip(&format!("netns del {host}"));
        }
    }
}

fn namespaces() -> [Option<String>; 2] {
    ["host-a-", "host-b-"].map(|name| Some(unique(name)))
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).output().is_ok_and(|output| output.status.success())
}

/// Creates a TAP interface, whose frames the file reads and writes.
fn tap(name: &str) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: all-zero is legal: an empty name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and the request is what TUNSETIFF reads and writes.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if code == 0 { Ok(file) } else { Err(io::Error::last_os_error()) }
}

/// Carries the frames between two interfaces.
fn carry(ends: &[File; 2], delay: Duration, lost: u64, has_ended: &AtomicBool) {
    const PAUSE: Duration = Duration::from_micros(500);
    let mut random = 1_u64;
    let mut frame = [0; 2048];
    let mut queues: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
    while !has_ended.load(Ordering::Relaxed) {
        let [one, other] = &mut queues;
        for (mut from, mut to, queue) in [(&ends[0], &ends[1], one), (&ends[1], &ends[0], other)] {
            while let Ok(length) = from.read(&mut frame) {
                // The generator of Knuth's MMIX; its high bits are the random ones.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if (random >> 33) % 1000 >= lost {
                    queue.push_back((Instant::now() + delay, frame[..length].to_vec()));
                }
            }
            while queue.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                // While the cable is unplugged, the write fails.
                let _ = queue.pop_front().map(|(_, frame)| to.write_all(&frame));
            }
        }
        thread::sleep(PAUSE);
    }
}
