//! The peer process: its start, the commands to it, and the measurements with it.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;
use std::{env, ptr};

use anyhow::{Context, Result, bail, ensure};
use sideway::ibverbs::memory_region::RemoteKey;
use sideway_benches::measure;

use super::side::{DEPTH, Endpoint, Side};

/// Bytes of a small message.
const SMALL: u32 = 64;

/// The peer, with the side of this process.
pub(crate) struct Peer {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    side: Side,
    theirs: Endpoint,
}

impl Peer {
    pub(crate) fn start(device: &str) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--peer", device])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the peer")?;
        let mut commands = child.stdin.take().context("the peer has no standard input")?;
        let mut replies = BufReader::new(child.stdout.take().context("the peer has no standard output")?);
        let mut side = Side::new(device)?;
        write_endpoint(&mut commands, side.endpoint())?;
        let theirs = read_endpoint(&mut replies)?;
        side.connect(theirs)?;
        ensure!(line(&mut replies)? == "ready", "the peer is not ready");
        Ok(Self { child, commands, replies, side, theirs })
    }

    /// Sends back and forth, one after the other: nanoseconds of each, one way.
    pub(crate) fn ping_pong(&mut self, count: usize) -> Result<f64> {
        self.command("pong", count)?;
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
        self.command("pong", 1)?;
        let mut laps = Laps::begin();
        for _ in 0..count {
            self.side.write(SMALL, self.theirs)?;
            self.side.wait(1, |_| {})?;
            laps.count();
        }
        self.end()?;
        Ok(laps.median())
    }

    /// Writes of `length` bytes, `depth` in flight: nanoseconds of each.
    pub(crate) fn writes(&mut self, count: usize, length: u32, depth: usize) -> Result<f64> {
        // The peer polls until one send has arrived.
        self.command("pong", 1)?;
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

    /// Copies with the system call that writes to another process: nanoseconds of each.
    pub(crate) fn copies(&mut self, count: usize, length: usize) -> Result<f64> {
        let near = libc::iovec { iov_base: self.side.memory().cast(), iov_len: length };
        let far = libc::iovec { iov_base: ptr::without_provenance_mut(self.theirs.address as usize), iov_len: length };
        let process = self.child.id() as libc::pid_t;
        let started = Instant::now();
        for _ in 0..count {
            // SAFETY: each range has `length` bytes that live as long as their process's side; nothing reads them
            // meanwhile.
            let copied = unsafe { libc::process_vm_writev(process, &raw const near, 1, &raw const far, 1, 0) };
            ensure!(copied == length as isize, "process_vm_writev: {}", io::Error::last_os_error());
        }
        Ok(started.elapsed().as_nanos() as f64 / count as f64)
    }

    pub(crate) fn stop(self) -> Result<()> {
        let Self { mut child, commands, .. } = self;
        drop(commands);
        let status = child.wait()?;
        ensure!(status.success(), "the peer ended with {status}");
        Ok(())
    }

    fn command(&mut self, what: &str, count: usize) -> Result<()> {
        writeln!(self.commands, "{what} {count}").context("the peer has ended")?;
        self.commands.flush()?;
        // The peer has posted its receives.
        ensure!(line(&mut self.replies)? == "begins", "the peer did not start the command");
        Ok(())
    }

    /// Ends the polling of the peer with a send, which it returns.
    fn end(&mut self) -> Result<()> {
        self.side.receive(SMALL)?;
        self.side.send(SMALL)?;
        self.side.wait(2, |_| {})?;
        self.done()
    }

    fn done(&mut self) -> Result<()> {
        ensure!(line(&mut self.replies)? == "done", "the peer did not finish the command");
        Ok(())
    }
}

/// Times messages in groups, which reads the clock less often; the median of the groups ignores pauses of a busy
/// machine.
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

    /// Counts a message.
    fn count(&mut self) {
        self.count += 1;
        if self.count.is_multiple_of(Self::LAP) {
            let now = Instant::now();
            self.times.push((now - self.started).as_nanos() as f64 / Self::LAP as f64);
            self.started = now;
        }
    }

    /// The median of nanoseconds per message, from at least ten messages.
    fn median(self) -> f64 {
        measure::middle(self.times)
    }
}

/// The program of the peer.
pub(crate) fn serve(device: &str) -> Result<()> {
    let mut side = Side::new(device)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    write_endpoint(&mut output, side.endpoint())?;
    let theirs = read_endpoint(&mut input)?;
    side.connect(theirs)?;
    writeln!(output, "ready")?;
    output.flush()?;
    loop {
        let command = match line(&mut input)? {
            command if command.is_empty() => return Ok(()),
            command => command,
        };
        let Some(count) = command.strip_prefix("pong ").and_then(|count| count.parse::<usize>().ok()) else {
            bail!("unknown command: {command}");
        };
        side.receive(SMALL)?;
        writeln!(output, "begins")?;
        output.flush()?;
        let mut sends = 0;
        for number in 0..count {
            // Waits for the completion of the receive; sends may complete before it.
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

fn write_endpoint(output: &mut impl Write, endpoint: Endpoint) -> Result<()> {
    writeln!(output, "{} {} {}", endpoint.number, u32::from(endpoint.key), endpoint.address)?;
    Ok(output.flush()?)
}

fn read_endpoint(input: &mut impl BufRead) -> Result<Endpoint> {
    let line = line(input)?;
    let mut fields = line.split_whitespace().map(str::parse::<u64>);
    let mut field = || fields.next().and_then(Result::ok).with_context(|| format!("the peer sent `{line}`"));
    Ok(Endpoint { number: field()? as u32, key: RemoteKey::from(field()? as u32), address: field()? })
}

fn line(input: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
