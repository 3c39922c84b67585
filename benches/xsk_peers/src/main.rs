//! Packets per second, CPU time and instructions per packet of loops over AF_XDP sockets, by xsk, C and other crates, in turn:
//! `xsk-peers [SECONDS [ROUNDS]]`, as root. All run on a veth pair in a network namespace of this process.

#[cfg(feature = "afxdp")]
mod afxdp;
mod ours;
mod xdp;
#[cfg(feature = "xsk-rs")]
mod xsk_rs;

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::xsk::{AttachMode, Filter, Interface, Program};
use anyhow::{Context, Result, bail, ensure};

const SOURCE: &str = include_str!("../c/xsk.c");
const TASKS: [&str; 3] = ["rxdrop", "txpush", "l2fwd"];

const FRAMES: u32 = 4096;
const RING: u32 = 2048;
const BATCH: usize = 64;
const LEN: usize = 60;
/// How long a receiving loop sleeps if no packet is available.
const IDLE: Duration = Duration::from_millis(100);
const HEADER: [u8; 14] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];

/// The parameters of a run.
struct Job {
    task: String,
    interface: String,
    /// Descriptor of the XSKMAP.
    map: i32,
    seconds: f64,
}

/// An implementation: runs a job, and returns the packets and the nanoseconds of CPU time.
type Run = fn(&Job) -> Result<(u64, u64)>;

/// The implementations in this program. The loops in C are a separate program.
const RUNS: &[(&str, Run)] = &[
    ("xsk", ours::run),
    ("xdp 0.8.0", xdp::run),
    #[cfg(feature = "xsk-rs")]
    ("xsk-rs 0.11.0", xsk_rs::run),
    #[cfg(feature = "afxdp")]
    ("afxdp 0.4.0", afxdp::run),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, name, task, interface, map, seconds] = &arguments[..] {
        ensure!(word == "worker", "usage: xsk-peers [SECONDS [ROUNDS]]");
        let (_, run) = RUNS.iter().find(|(known, _)| known == name).context("no such implementation")?;
        let job =
            Job { task: task.clone(), interface: interface.clone(), map: map.parse()?, seconds: seconds.parse()? };
        let (packets, cpu) = run(&job)?;
        println!("{packets} {cpu}");
        // afxdp frees its socket twice when it is dropped, so this program drops nothing.
        std::process::exit(0);
    }
    let number = |at: usize, default: &str| arguments.get(at).map_or(default, String::as_str).to_owned();
    let (seconds, rounds) = (number(1, "1").parse()?, number(2, "7").parse()?);
    let folder = std::env::temp_dir().join(format!("xsk-peers-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let done = compare(&folder, seconds, rounds);
    fs::remove_dir_all(&folder)?;
    done
}

fn compare(folder: &Path, seconds: f64, rounds: usize) -> Result<()> {
    let (source, c) = (folder.join("xsk.c"), folder.join("xsk"));
    fs::write(&source, SOURCE)?;
    let built = Command::new("gcc").args(["-O2", "-o"]).args([&c, &source]).status().context("cannot run gcc")?;
    ensure!(built.success(), "gcc failed");
    leave_network()?;
    println!(
        "{:8} {:14} {:>12} {:>6} {:>14} {:>6} {:>20}",
        "loop", "by", "packets/s", "of C", "CPU ns/packet", "of C", "instructions/packet"
    );
    for task in TASKS {
        let names: Vec<&str> = std::iter::once("C").chain(RUNS.iter().map(|(name, _)| *name)).collect();
        let mut results: Vec<Vec<(f64, f64)>> = vec![Vec::new(); names.len()];
        for round in 0..rounds {
            for at in 0..names.len() {
                // Each round starts with a different implementation.
                let at = (at + round) % names.len();
                let (packets, cpu) = one(names[at], &c, task, seconds, None)?;
                results[at].push((packets as f64 / seconds, cpu as f64 / packets.max(1) as f64));
            }
        }
        let medians: Vec<(f64, f64)> =
            results.iter().map(|one| (median(one.iter().map(|x| x.0)), median(one.iter().map(|x| x.1)))).collect();
        for (name, (rate, cpu)) in names.iter().zip(&medians) {
            let (of_rate, of_cpu) = (rate / medians[0].0, cpu / medians[0].1);
            let counts = (0..3).map(|_| instructions(name, &c, task, folder)).collect::<Result<Vec<f64>>>()?;
            let count = median(counts.into_iter());
            println!("{task:8} {name:14} {rate:12.0} {of_rate:6.2} {cpu:14.0} {of_cpu:6.2} {count:20.1}");
        }
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Instructions per packet outside the kernel: the difference between callgrind's totals of a long and a short run. The
/// loops are slow under callgrind, so most batches are full.
fn instructions(name: &str, c: &Path, task: &str, folder: &Path) -> Result<f64> {
    let file = folder.join("callgrind.out");
    let count = |seconds: f64| -> Result<(f64, f64)> {
        let (packets, _) = one(name, c, task, seconds, Some(&file))?;
        let text = fs::read_to_string(&file)?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
        Ok((packets as f64, total.context("callgrind reports no total")?))
    };
    let (few, many) = (count(0.5)?, count(3.0)?);
    ensure!(many.0 > few.0, "{name} {task}: no more packets in the long run than in the short one");
    Ok((many.1 - few.1) / (many.0 - few.0))
}

/// Creates a network namespace for this process.
fn leave_network() -> Result<()> {
    // SAFETY: the call takes no pointers, and this process has one thread.
    ensure!(unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0, "no network namespace; run as root");
    fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").ok();
    Ok(())
}

/// A veth pair, v0 and v1. Each run uses a new pair, because a closed socket occupies its queue a little longer, and
/// some crates do not retry.
fn make_link() -> Result<()> {
    let queues = "numrxqueues 1 numtxqueues 1";
    ip(&format!("link add v0 {queues} type veth peer name v1 {queues}"))?;
    ip("link set v0 up")?;
    ip("link set v1 up")
}

fn ip(command: &str) -> Result<()> {
    ensure!(Command::new("ip").args(command.split(' ')).status()?.success(), "ip {command} failed");
    Ok(())
}

/// One run on v1, under callgrind if there is a file for its counts. If the run receives, xsk sends on v0 meanwhile.
fn one(name: &str, c: &Path, task: &str, seconds: f64, counts: Option<&Path>) -> Result<(u64, u64)> {
    make_link()?;
    let receives = task != "txpush";
    let brings_program = name.starts_with("afxdp");
    let program = Program::load(Filter::All)?;
    let attach = || program.attach(&Interface::by_name("v1")?, AttachMode::Native);
    let attached = (receives && !brings_program).then(attach).transpose()?;
    // SAFETY: the call takes no pointers. The duplicate stays open in children.
    let map = unsafe { libc::dup(program.map().as_fd().as_raw_fd()) };
    let arguments = |task: &str, interface: &str, seconds: f64| {
        [task.to_owned(), interface.to_owned(), map.to_string(), seconds.to_string()]
    };
    let worker = |name: &str, arguments: &[String], counts: Option<&Path>| -> Result<Child> {
        let program = if name == "C" { c.to_owned() } else { std::env::current_exe()? };
        let mut command = Command::new(if counts.is_some() { Path::new("valgrind") } else { &program });
        if let Some(file) = counts {
            command.args(["--quiet", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", file.display()));
            command.arg(&program);
        }
        if name != "C" {
            command.args(["worker", name]);
        }
        Ok(command.args(arguments).stdout(Stdio::piped()).spawn()?)
    };
    let mut sender = receives.then(|| worker("xsk", &arguments("txpush", "v0", seconds + 60.0), None)).transpose()?;
    let output = worker(name, &arguments(task, "v1", seconds), counts)?.wait_with_output();
    if let Some(sender) = &mut sender {
        sender.kill()?;
        sender.wait()?;
    }
    // SAFETY: this function owns the descriptor.
    unsafe { libc::close(map) };
    drop(attached);
    ip("link del v0")?;
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    match numbers[..] {
        [packets, cpu] if output.status.success() => Ok((packets, cpu)),
        _ => bail!("{name} {task} failed: {} {text}", output.status),
    }
}

/// The end time of a loop, and its CPU time.
struct Clock {
    end: Instant,
    cpu: u64,
    calls: u32,
}

impl Clock {
    fn start(job: &Job) -> Self {
        Self { end: Instant::now() + Duration::from_secs_f64(job.seconds), cpu: cpu_time(), calls: 0 }
    }

    /// Reads the clock at each 256th call.
    fn runs(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        !self.calls.is_multiple_of(256) || Instant::now() < self.end
    }

    fn cpu(&self) -> u64 {
        cpu_time() - self.cpu
    }
}

fn cpu_time() -> u64 {
    // SAFETY: zeros are a valid time, and the pointer refers to it.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
