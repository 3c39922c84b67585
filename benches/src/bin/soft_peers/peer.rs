//! The other process: started, told what to do line by line, and measured against.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;
use std::{env, ptr};

use anyhow::{Context, Result, bail, ensure};
use sideway::ibverbs::memory_region::RemoteKey;
use sideway_benches::measure;

use super::side::{DEPTH, Name, Side};

/// The bytes of a small message.
const SMALL: u32 = 64;

/// The peer, with this process's end of the pair.
pub(crate) struct Peer {
    child: Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
    side: Side,
    theirs: Name,
}

impl Peer {
    pub(crate) fn start(device: &str) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--peer", device])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the peer")?;
        let mut orders = child.stdin.take().context("it has an input")?;
        let mut replies = BufReader::new(child.stdout.take().context("it has an output")?);
        let mut side = Side::new(device)?;
        write_name(&mut orders, side.name())?;
        let theirs = read_name(&mut replies)?;
        side.connect(theirs)?;
        ensure!(line(&mut replies)? == "ready", "the peer is not ready");
        Ok(Self { child, orders, replies, side, theirs })
    }

    /// Sends that come back, one after the other: nanoseconds of each, one way.
    pub(crate) fn ping_pong(&mut self, count: usize) -> Result<f64> {
        self.order("pong", count)?;
        let mut laps = Laps::begin();
        for _ in 0..count {
            self.side.receive(SMALL)?;
            self.side.send(SMALL)?;
            self.side.wait(2, |_| {})?;
            laps.count();
        }
        self.done()?;
        Ok(laps.median() / 2.0)
    }

    /// Small writes, one after the other: nanoseconds of each.
    pub(crate) fn small_writes(&mut self, count: usize) -> Result<f64> {
        self.order("pong", 1)?;
        let mut laps = Laps::begin();
        for _ in 0..count {
            self.side.write(SMALL, self.theirs)?;
            self.side.wait(1, |_| {})?;
            laps.count();
        }
        self.end()?;
        Ok(laps.median())
    }

    /// Writes of so many bytes, so many under way: nanoseconds of each.
    pub(crate) fn writes(&mut self, count: usize, length: u32, depth: usize) -> Result<f64> {
        // It polls until one send has come.
        self.order("pong", 1)?;
        let started = Instant::now();
        let (mut posted, mut completed) = (0, 0);
        while completed < count {
            while posted < count && posted - completed < depth {
                self.side.write(length, self.theirs)?;
                posted += 1;
            }
            self.side.wait(1, |_| completed += 1)?;
        }
        let time = started.elapsed();
        self.end()?;
        Ok(time.as_nanos() as f64 / count as f64)
    }

    /// The same by the system call that copies into another process.
    pub(crate) fn copies(&mut self, count: usize, length: usize) -> Result<f64> {
        let near = libc::iovec { iov_base: self.side.memory().cast(), iov_len: length };
        let far = libc::iovec { iov_base: ptr::without_provenance_mut(self.theirs.address as usize), iov_len: length };
        let process = self.child.id() as libc::pid_t;
        let started = Instant::now();
        for _ in 0..count {
            // SAFETY: both have as many bytes, which stay as long as both sides; nobody reads them.
            let copied = unsafe { libc::process_vm_writev(process, &raw const near, 1, &raw const far, 1, 0) };
            ensure!(copied == length as isize, "process_vm_writev: {}", io::Error::last_os_error());
        }
        Ok(started.elapsed().as_nanos() as f64 / count as f64)
    }

    pub(crate) fn stop(self) -> Result<()> {
        let Self { mut child, orders, .. } = self;
        drop(orders);
        let status = child.wait()?;
        ensure!(status.success(), "the peer ended with {status}");
        Ok(())
    }

    fn order(&mut self, what: &str, count: usize) -> Result<()> {
        writeln!(self.orders, "{what} {count}").context("the peer is gone")?;
        self.orders.flush()?;
        // Its receives are posted.
        ensure!(line(&mut self.replies)? == "begins", "the peer has not begun");
        Ok(())
    }

    /// Has it end its polling, by a send that comes back.
    fn end(&mut self) -> Result<()> {
        self.side.receive(SMALL)?;
        self.side.send(SMALL)?;
        self.side.wait(2, |_| {})?;
        self.done()
    }

    fn done(&mut self) -> Result<()> {
        ensure!(line(&mut self.replies)? == "done", "the peer has not ended");
        Ok(())
    }
}

/// Times of so many messages each: the clock is looked at seldom, and the median has none of the pauses of a busy machine.
struct Laps {
    started: Instant,
    count: usize,
    times: Vec<f64>,
}

impl Laps {
    const LAP: usize = 10;

    fn begin() -> Self {
        Self { started: Instant::now(), count: 0, times: Vec::new() }
    }

    /// A message is done.
    fn count(&mut self) {
        self.count += 1;
        if self.count.is_multiple_of(Self::LAP) {
            let now = Instant::now();
            self.times.push((now - self.started).as_nanos() as f64 / Self::LAP as f64);
            self.started = now;
        }
    }

    /// Nanoseconds of a message. There were at least ten.
    fn median(self) -> f64 {
        measure::middle(self.times)
    }
}

/// The peer's own program.
pub(crate) fn serve(device: &str) -> Result<()> {
    let mut side = Side::new(device)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    write_name(&mut output, side.name())?;
    let theirs = read_name(&mut input)?;
    side.connect(theirs)?;
    writeln!(output, "ready")?;
    output.flush()?;
    loop {
        let order = match line(&mut input)? {
            order if order.is_empty() => return Ok(()),
            order => order,
        };
        let Some(count) = order.strip_prefix("pong ").and_then(|count| count.parse::<usize>().ok()) else {
            bail!("no such order: {order}");
        };
        side.receive(SMALL)?;
        writeln!(output, "begins")?;
        output.flush()?;
        let mut sends = 0;
        for number in 0..count {
            // The receive, among completions of sends.
            let mut received = false;
            while !received {
                side.wait(1, |request| if request == 2 { received = true } else { sends += 1 })?;
            }
            if number + 1 < count {
                side.receive(SMALL)?;
            }
            side.send(SMALL)?;
            ensure!(number + 1 - sends < DEPTH as usize, "sends do not complete");
        }
        side.wait(count - sends, |_| {})?;
        writeln!(output, "done")?;
        output.flush()?;
    }
}

fn write_name(output: &mut impl Write, name: Name) -> Result<()> {
    writeln!(output, "{} {} {}", name.number, u32::from(name.key), name.address)?;
    Ok(output.flush()?)
}

fn read_name(input: &mut impl BufRead) -> Result<Name> {
    let line = line(input)?;
    let mut words = line.split_whitespace().map(str::parse::<u64>);
    let mut word = || words.next().and_then(Result::ok).with_context(|| format!("the peer said `{line}`"));
    Ok(Name { number: word()? as u32, key: RemoteKey::from(word()? as u32), address: word()? })
}

fn line(input: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
