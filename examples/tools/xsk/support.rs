//! Code that the AF_XDP programs share: options, links, Ctrl-C and rates.

#![allow(dead_code, reason = "each program uses only a part of this module")]

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use xsk::{
    AttachMode, Attached, BusyPoll, Filter, Interface, Packet, Program, Queue, Socket, SocketBuilder, Statistics, Umem,
    UmemBuilder, ZeroCopy,
};

/// Maximum time that an idle loop sleeps before it checks for Ctrl-C.
pub(crate) const IDLE: Duration = Duration::from_millis(100);

/// The last paragraph of each program's `--help`.
pub(crate) const RIGHTS: &str = "\
Run as root: a socket requires CAP_NET_RAW, and the XDP program CAP_BPF and CAP_NET_ADMIN. The program is attached while this process runs. \
It redirects all packets of the queue to this process; the kernel's network stack receives none of them, so SSH sessions through the queue stall. \
Packets of the interface's other queues go to the kernel. To have one queue only: ethtool -L eth0 combined 1

To try it without a NIC, connect two network namespaces:
  ip netns add a; ip netns add b
  ip link add v0 netns a type veth peer name v1 netns b
  ip -n a link set v0 up; ip -n b link set v1 up
Then start, in two terminals:
  ip netns exec a rxdrop --link-name v0
  ip netns exec b txpush --link-name v1
Programs with two links need a second pair.

Exit status: 0 after Ctrl-C, 1 on failure, 2 for invalid arguments.";

/// The memory and the mode of all sockets.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Size of a buffer in bytes: 2048 or 4096, unless --unaligned
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    bufsize: u32,

    /// Number of packet buffers; more absorb longer scheduling delays
    #[arg(long, value_name = "COUNT", default_value_t = 32768, value_parser = clap::value_parser!(u32).range(64..))]
    bufnum: u32,

    /// Maximum number of packets per batch
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=2048))]
    batch_size: u32,

    /// Allocate the buffers in huge pages (see vm.nr_hugepages)
    #[arg(long)]
    huge_tlb: bool,

    /// Require zero copy [default: zero copy if the driver supports it]
    #[arg(long)]
    zero_copy: bool,

    /// Use copy mode even if the driver supports zero copy
    #[arg(long, conflicts_with = "zero_copy")]
    copy: bool,

    /// Attach the XDP program in generic mode [default: native, else generic]
    #[arg(long)]
    skb: bool,

    /// Require native mode (XDP program in the driver)
    #[arg(long, conflicts_with = "skb")]
    drv: bool,

    /// Busy-poll the driver instead of sleeping until an interrupt
    #[arg(long)]
    busy_poll: bool,

    /// Use unaligned chunks: --bufsize may be any multiple of 8
    #[arg(long)]
    unaligned: bool,
}

impl Options {
    /// Packets per batch.
    pub(crate) fn batch(&self) -> usize {
        self.batch_size as usize
    }

    pub(crate) fn is_busy_polling(&self) -> bool {
        self.busy_poll
    }

    pub(crate) fn umem(&self) -> UmemBuilder {
        let mut builder = Umem::builder(self.bufnum);
        builder.frame_size(self.bufsize).unaligned(self.unaligned).huge_pages(self.huge_tlb);
        builder
    }

    /// Returns the builder of one of `sockets` sockets that share a UMEM. The rings have space for the socket's share
    /// of the buffers.
    pub(crate) fn socket(&self, link: &Link, sockets: u32) -> Result<SocketBuilder> {
        let mut builder = Socket::builder(&Interface::by_name(&link.name)?, link.channel);
        builder.ring_size(1 << (self.bufnum / sockets).ilog2());
        builder.zero_copy(match (self.zero_copy, self.copy) {
            (true, _) => ZeroCopy::Required,
            (_, true) => ZeroCopy::Refused,
            _ => ZeroCopy::Preferred,
        });
        if self.busy_poll {
            builder.busy_poll(BusyPoll { budget: self.batch_size, ..BusyPoll::default() });
        }
        Ok(builder)
    }

    fn mode(&self) -> AttachMode {
        match (self.skb, self.drv) {
            (true, _) => AttachMode::Generic,
            (_, true) => AttachMode::Native,
            _ => AttachMode::Auto,
        }
    }
}

/// The attached programs, one for each interface, and the sockets that receive.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    programs: Vec<(String, Program, Attached)>,
    sockets: Vec<(Link, Arc<Socket>)>,
}

impl Steering {
    /// Passes the packets of the link's queue to a socket.
    pub(crate) fn add(&mut self, options: &Options, link: &Link, socket: &Arc<Socket>) -> Result<()> {
        let at = match self.programs.iter().position(|(name, ..)| *name == link.name) {
            Some(at) => at,
            None => {
                let program = Program::load(Filter::All)?;
                let attached = program.attach(&Interface::by_name(&link.name)?, options.mode())?;
                self.programs.push((link.name.clone(), program, attached));
                self.programs.len() - 1
            }
        };
        let (_, program, attached) = &self.programs[at];
        program.map().insert(socket)?;
        let mode = if attached.is_native() { "native" } else { "generic" };
        let copy = if socket.granted().zero_copy { "zero copy" } else { "copy" };
        writeln!(io::stderr(), "{link}: {copy} mode, XDP program in {mode} mode")?;
        self.sockets.push((link.clone(), Arc::clone(socket)));
        Ok(())
    }

    /// Prints how many packets the kernel dropped before each socket.
    pub(crate) fn report_losses(&self) -> Result<()> {
        for (link, socket) in &self.sockets {
            let Statistics { rx_dropped: without_buffer, rx_ring_full: ring_full, .. } = socket.statistics()?;
            if without_buffer + ring_full != 0 {
                writeln!(
                    io::stderr(),
                    "{link}: the kernel dropped {without_buffer} packets without a free or large enough buffer, {ring_full} at a full ring; \
                     this process was too slow or paused: raise --bufnum or lower the rate"
                )?;
            }
        }
        Ok(())
    }
}

/// An interface and one of its queues.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) channel: u32,
}

/// The one link of a program.
#[derive(Args, Clone, Debug)]
pub(crate) struct OneLink {
    /// Network interface
    #[arg(long, value_name = "NAME")]
    pub(crate) link_name: String,

    /// Queue of the interface
    #[arg(long, value_name = "QUEUE", default_value_t = 0)]
    pub(crate) link_channel: u32,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} queue {}", self.name, self.channel)
    }
}

impl OneLink {
    pub(crate) fn link(&self) -> Link {
        Link { name: self.link_name.clone(), channel: self.link_channel }
    }
}

/// Opens both links with one UMEM, and attaches the program to both.
pub(crate) fn open_pair(options: &Options, links: &[Link; 2]) -> Result<[Queue; 2]> {
    let (umem, mut pool) = options.umem().build()?;
    let mut open = |link: &Link, frames| -> Result<Queue> {
        let mut queue = options.socket(link, 2)?.open(&umem)?;
        queue.fill.refill(&mut pool.split(frames));
        Ok(queue)
    };
    let half = options.bufnum as usize / 2;
    Ok([open(&links[0], half)?, open(&links[1], half)?])
}

/// Forwards packets between two links with one UMEM until Ctrl-C.
pub(crate) fn forward(options: &Options, queues: &mut [Queue; 2], counters: [&Counter; 2]) -> Result<()> {
    while !is_stopped() {
        let [a, b] = &mut *queues;
        let moved = pass(options, a, b, counters[0])? + pass(options, b, a, counters[1])?;
        // Before Linux 6.17, one call sends 32 packets, so some may be left.
        let is_idle = moved == 0 && a.tx.pending() == 0 && b.tx.pending() == 0;
        if is_idle && !options.busy_poll {
            wait(&[&a.rx, &b.rx])?;
        }
    }
    Ok(())
}

/// Forwards one batch from one link to the other, and moves sent frames to the first link's fill ring.
fn pass(options: &Options, from: &mut Queue, to: &mut Queue, counter: &Counter) -> Result<usize> {
    let mut bytes = 0;
    let count = from.rx.batch(options.batch()).forward(&mut to.tx, |packet| bytes += packet.len());
    counter.add(count, bytes);
    if to.tx.pending() != 0 {
        to.tx.wake()?;
    }
    to.completion.batch(options.batch()).refill(&mut from.fill);
    from.fill.wake()?;
    if options.busy_poll {
        from.rx.busy_poll()?;
    }
    Ok(count)
}

/// Waits until one of these sockets is readable.
fn wait(sockets: &[&dyn std::os::fd::AsFd]) -> Result<()> {
    use std::os::fd::AsRawFd;
    let poll = |socket: &&dyn std::os::fd::AsFd| libc::pollfd {
        fd: socket.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<libc::pollfd> = sockets.iter().map(poll).collect();
    // SAFETY: the pointer leads to this number of entries.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, IDLE.as_millis() as i32) };
    let is_gone = polls.iter().any(|poll| poll.revents & libc::POLLERR != 0);
    ensure!(!is_gone, "an interface was removed; create it again, then restart this program");
    Ok(())
}

/// Exchanges source and destination of an Ethernet packet.
pub(crate) fn swap_addresses(packet: &mut Packet) {
    let (destination, rest) = packet.bytes_mut().split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
}

/// Packets and bytes of one direction.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// Only one thread adds, so a load and a store suffice.
    pub(crate) fn add(&self, packets: usize, bytes: usize) {
        let add = |to: &AtomicU64, value: usize| to.store(to.load(Ordering::Relaxed) + value as u64, Ordering::Relaxed);
        add(&self.packets, packets);
        add(&self.bytes, bytes);
    }

    pub(crate) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    fn read(&self) -> [u64; 2] {
        [&self.packets, &self.bytes].map(|value| value.load(Ordering::Relaxed))
    }
}

/// Prints the rates of the counters once a second until Ctrl-C, and the totals at the end.
pub(crate) fn report(rows: &[(String, &Counter)]) -> Result<()> {
    let mut out = io::stdout();
    let mut before: Vec<[u64; 2]> = rows.iter().map(|(_, counter)| counter.read()).collect();
    let mut started = Instant::now();
    while !is_stopped() {
        thread::sleep(IDLE);
        let elapsed = started.elapsed();
        if elapsed < Duration::from_secs(1) {
            continue;
        }
        for ((name, counter), before) in rows.iter().zip(&mut before) {
            let now = counter.read();
            let rate = |at: usize| (now[at] - before[at]) as f64 / elapsed.as_secs_f64();
            writeln!(out, "{name}: {:.0} packets/s, {:.3} Gbit/s", rate(0), rate(1) * 8e-9)?;
            *before = now;
        }
        started = Instant::now();
    }
    for (name, counter) in rows {
        let [packets, bytes] = counter.read();
        writeln!(out, "{name}: {packets} packets, {bytes} bytes in all")?;
    }
    Ok(())
}

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C was pressed, or a worker has failed.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// Ends all loops.
pub(crate) fn stop() {
    STOPPED.store(true, Ordering::Relaxed);
}

extern "C" fn on_signal(signal: i32) {
    static BEFORE: AtomicBool = AtomicBool::new(false);
    stop();
    // A third signal ends the process. The second one may be a copy of the first, for example if `timeout` forwards the
    // signal that the process group receives, so the report must still be printed.
    if BEFORE.swap(true, Ordering::Relaxed) {
        // SAFETY: the call may be made in a handler; the default action has no pointer.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Runs a program: until Ctrl-C (SIGINT) or SIGTERM.
pub(crate) fn run(program: impl FnOnce() -> Result<()>) -> ExitCode {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic and calls `signal`.
        unsafe { libc::signal(signal, on_signal as *const () as libc::sighandler_t) };
    }
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If this fails too, nothing can be reported.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs workers in threads, while this thread reports. Ends when all have ended; the first error stops the others.
pub(crate) fn work<F: FnOnce() -> Result<()> + Send>(workers: Vec<F>, rows: &[(String, &Counter)]) -> Result<()> {
    thread::scope(|scope| {
        let start = |worker: F| {
            scope.spawn(|| {
                let ended = worker();
                stop();
                ended
            })
        };
        let threads: Vec<_> = workers.into_iter().map(start).collect();
        report(rows)?;
        for thread in threads {
            match thread.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("a worker has panicked"),
            }
        }
        Ok(())
    })
}

/// One entry of a configuration file: keys and values.
#[derive(Debug, Default)]
pub(crate) struct Entry(Vec<(String, String)>);

impl Entry {
    pub(crate) fn text(&self, key: &str) -> Result<&str> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).with_context(|| format!("an entry has no `{key}`"))
    }

    pub(crate) fn number(&self, key: &str) -> Result<u32> {
        let text = self.text(key)?;
        text.parse().with_context(|| format!("`{key}: {text}` is not a number"))
    }

    /// Returns the link whose keys begin with this prefix.
    pub(crate) fn link(&self, prefix: &str) -> Result<Link> {
        let name = self.text(&format!("{prefix}_name"))?.to_owned();
        Ok(Link { name, channel: self.number(&format!("{prefix}_channel"))? })
    }
}

/// Reads a list of entries. As in YAML, each begins with `-` and has one `key: value` per line.
pub(crate) fn entries(path: &Path) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {}; name a file with --config-file", path.display()))?;
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        let (is_new, line) = line.strip_prefix('-').map_or((false, line), |rest| (true, rest.trim()));
        if is_new {
            entries.push(Entry::default());
        }
        if line.is_empty() {
            continue;
        }
        let pair = line.split_once(':').zip(entries.last_mut());
        let ((key, value), entry) = pair.with_context(|| {
            format!("{}: `{line}` is not a `key: value` of an entry; begin each entry with `-`", path.display())
        })?;
        entry.0.push((key.trim().to_owned(), value.trim().trim_matches('"').to_owned()));
    }
    ensure!(!entries.is_empty(), "{} has no entry; --help has an example", path.display());
    Ok(entries)
}

/// Moves the calling thread to a processor.
pub(crate) fn pin(core: u32) -> Result<()> {
    // SAFETY: zeroes are an empty set; the index is checked by the macro's function, and the pointer leads to the set.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        ensure!(
            (core as usize) < libc::CPU_SETSIZE as usize,
            "no processor {core}; choose one that /proc/cpuinfo lists"
        );
        libc::CPU_SET(core as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    ensure!(
        done == 0,
        "cannot run on processor {core}: {}; choose one that `taskset -p $$` allows",
        io::Error::last_os_error()
    );
    Ok(())
}
