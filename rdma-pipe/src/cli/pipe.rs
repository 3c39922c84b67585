//! `rdpipe`.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use super::LinkArguments;
use crate::error::{Error, Kind, Result};
use crate::launch::{Far, Input, LinkRequest, Reply, Request, Role, Shell, random_key, serve};
use crate::link::{Link, Options, Patience, connect, reconnect};
use crate::pipeline::{self, Next, Segment, parse};
use crate::proto::{Peer, Purpose};
use crate::show::print_error;
use crate::standard::Standard;
use crate::stream::{self, Output};
use crate::thread::{refused, start};

/// Time limit for connecting to the segments, which are already listening.
const CONNECT: Duration = Duration::from_secs(10);

/// Run a pipeline across hosts; data goes directly between them, over RDMA or TCP
#[derive(Debug, Parser)]
#[command(name = "rdpipe", version, max_term_width = 100, override_usage = "rdpipe [OPTIONS] [HOST:]COMMAND...")]
pub struct PipeCommand {
    #[command(flatten)]
    link: LinkArguments,
    /// Print the segments without running them
    #[arg(short = 'n', long = "dryrun", alias = "dry-run")]
    dry_run: bool,
    /// TCP port on which each host listens [default: any]
    #[arg(short, long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Ignored, because the segments do not connect to this host
    #[arg(short = 'H', long, value_name = "NAME", hide = true)]
    hostname: Option<String>,
    /// Remote shell
    #[arg(short = 'e', long, value_name = "COMMAND", default_value = "ssh")]
    rsh: String,
    /// Path of rdpipe on the other hosts
    #[arg(long, value_name = "COMMAND", default_value = "rdpipe")]
    rdpipe_path: String,
    /// Serve the rdpipe that started this one
    #[arg(long, hide = true)]
    server: bool,
    /// Segments: HOST:COMMAND or COMMAND; < FILE, > FILE, >> FILE read and write files
    #[arg(value_name = "[HOST:]COMMAND", required_unless_present = "server")]
    segments: Vec<String>,
}

impl PipeCommand {
    /// Returns the number of times that `-v` was given.
    pub fn verbosity(&self) -> u8 {
        self.link.verbose
    }

    /// Runs the pipeline; returns the status of the first segment that failed.
    ///
    /// # Errors
    ///
    /// A segment cannot be started, or a stream broke.
    pub fn run(self) -> Result<u8> {
        if self.server {
            return serve(None);
        }
        let operands: Vec<pipeline::Operand> = self.segments.iter().map(|text| parse(text)).collect();
        if self.dry_run {
            for operand in &operands {
                print_error(&format!("{}: {:?}", operand.host.as_deref().unwrap_or("this host"), operand.action));
            }
            return Ok(0);
        }
        let options = self.link.options();
        let shell = Shell::new((self.rsh != "ssh").then_some(self.rsh.as_str()), "rdpipe", &self.rdpipe_path)?;
        let takes_input = !io::stdin().is_terminal();
        let null = || File::open("/dev/null").map_err(|error| Error::file("open", Path::new("/dev/null"), &error));
        let input = OwnedFd::from(if takes_input { Standard::Input.open()? } else { null()? });
        let output = Output::Fd(Standard::Output.open()?.into(), Standard::Output.name().to_owned());
        options.prepare()?;
        // Starts the last segment first, because each segment needs the address of the next.
        let mut segments = Vec::new();
        let mut next = Next::Accept;
        let mut last = None;
        for (index, operand) in operands.iter().enumerate().rev() {
            let has_input = if index == 0 { takes_input } else { operands[index - 1].has_output() };
            let key = random_key()?;
            let label = |index: usize| {
                let host = operands[index].host.as_deref().unwrap_or("this host");
                format!("segment {} at {host}", index + 1)
            };
            let previous = index.checked_sub(1).map_or_else(|| pipeline::STARTER.to_owned(), label);
            let segment = Segment { action: operand.action.clone(), previous, has_input, next };
            let request =
                Request { key: key.clone(), role: Role::Segment(segment), link: LinkRequest::new(&options, self.port) };
            let mut far = Far::start(&shell, operand.host.as_deref(), Some(label(index)), &request)?;
            let peer = far.peer(key)?;
            last.get_or_insert_with(|| peer.clone());
            next = Next::Connect(peer);
            segments.push(far);
        }
        let (Next::Connect(first), Some(last)) = (next, last) else {
            return Err(Error::new(Kind::Usage, "no segments; see rdpipe --help"));
        };
        segments.reverse();
        let own = Arc::new(Own { inputs: segments.iter().map(Far::input).collect(), stopped: Mutex::default() });
        // The thread is not joined, because it may still block in a read after the pipeline has ended. If the stream
        // fails later, the first segment reports this.
        let (connecting, sender) = (options.clone(), Arc::clone(&own));
        let sending = thread::Builder::new().spawn(move || {
            if let Ok((link, again)) =
                open(&first, Purpose::Send, &connecting).inspect_err(|error| sender.stop(Some(error)))
            {
                // See above.
                _ = stream::send(link, again, &input, "the standard input");
            }
        });
        sending.map_err(|error| refused(&error))?;
        let received = open(&last, Purpose::Receive, &options)
            .inspect_err(|error| own.stop(Some(error)))
            .and_then(|(link, again)| stream::receive(link, again, output));
        // At the same time, because a segment may wait for its input until another one has failed.
        let ended = thread::scope(|scope| {
            let segments = segments.into_iter().map(|far| start(scope, || finish(far, &own)));
            let segments = segments.collect::<Result<Vec<_>>>().inspect_err(|error| own.stop(Some(error)))?;
            let join = segments.into_iter().map(|segment| segment.join().unwrap_or_else(|panic| resume_unwind(panic)));
            Ok::<Vec<_>, Error>(join.collect())
        })?;
        let (is_stopped, own) = std::mem::take(&mut *own.lock());
        let (causes, effects) = failures(ended, is_stopped);
        // What has failed ends the connections of its neighbours, whose errors then add nothing.
        if causes.is_empty()
            && let Err(error) = &received
            && error.parts().0.is_empty()
        {
            return Err(error.clone());
        }
        let mut failed = if causes.is_empty() { effects } else { causes }.into_iter();
        let first = failed.next();
        failed.for_each(|failure| print_error(&format!("rdpipe: {failure}")));
        match first {
            Some(Failed::Status(label, status)) => {
                print_error(&format!("rdpipe: {}", Failed::Status(label, status)));
                return Ok(status);
            }
            Some(Failed::Error(error)) => return Err(error),
            None => {}
        }
        if let Some(error) = own {
            return Err(error);
        }
        let summary = received?;
        if self.link.verbose > 0 {
            print_error(&summary.bandwidth());
        }
        Ok(0)
    }
}

/// What ends the segments.
struct Own {
    /// The standard inputs of the segments. Without its input, a segment ends. Otherwise it would wait for a connection,
    /// or for data, that does not come.
    inputs: Vec<Input>,
    /// Whether this process has closed the inputs, and its own error.
    stopped: Mutex<(bool, Option<Error>)>,
}

impl Own {
    /// Ends the segments, because of an error of this process or of a segment.
    fn stop(&self, error: Option<&Error>) {
        let mut stopped = self.lock();
        stopped.0 = true;
        if stopped.1.is_none() {
            stopped.1 = error.cloned();
        }
        self.inputs.iter().for_each(Input::close);
    }

    fn lock(&self) -> MutexGuard<'_, (bool, Option<Error>)> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects to a segment. Also returns a function that connects again after the connection broke.
fn open<'p>(
    peer: &'p Peer,
    purpose: Purpose,
    options: &'p Options,
) -> Result<(Link, impl FnMut(Instant) -> Result<Link> + use<'p>)> {
    let link = connect(peer, purpose, Patience::Listening(CONNECT), options)?;
    Ok((link, move |until| reconnect(peer, purpose, until, options)))
}

/// Waits until a segment exits. If its process has failed, ends the others.
fn finish(mut far: Far, own: &Own) -> (String, Result<u8>) {
    let status = loop {
        match far.reply() {
            Ok(Reply::Finished { status, .. }) => break Ok(status),
            Ok(_) => {}
            Err(error) => {
                if error.parts().0 == far.label() {
                    own.stop(None);
                }
                break Err(error);
            }
        }
    };
    (far.label().to_owned(), status)
}

/// The failure of a segment.
enum Failed {
    /// The name of the segment, and the exit status of its command.
    Status(String, u8),
    Error(Error),
}

impl Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Status(label, status) => write!(f, "{label} failed with status {status}"),
            Failed::Error(error) => error.fmt(f),
        }
    }
}

/// The failures of the segments, and the errors of the connections between them. `is_stopped` is whether this process
/// has stopped the segments.
fn failures(ended: Vec<(String, Result<u8>)>, is_stopped: bool) -> (Vec<Failed>, Vec<Failed>) {
    let (mut causes, mut effects) = (Vec::new(), Vec::new());
    for (label, status) in ended {
        match status {
            Ok(0) => {}
            Ok(status) => causes.push(Failed::Status(label, status)),
            Err(error) if error.kind() == Kind::Broken && is_stopped => {}
            Err(error) if error.parts().0 == label => causes.push(Failed::Error(error)),
            Err(error) => effects.push(Failed::Error(error)),
        }
    }
    (causes, effects)
}
