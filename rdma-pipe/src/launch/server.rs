//! The far side: serves a request.

use std::ffi::OsStr;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Reply, Request, Role};
use crate::copy::{self, CopyOptions, Progress, Target, below, give_back_permissions};
use crate::error::{Error, Kind, Result};
use crate::link::{Link, Listener, Options, connect};
use crate::proto::{Failure, Peer, Purpose};
use crate::standard::Standard;
use crate::thread::refused;
use crate::tree::{Ancestry, Directory, Origin};

/// Time limit for the peer to connect, and to reconnect after the connection broke.
const CONNECT: Duration = Duration::from_secs(60);
/// The factor by which the time-out of a chain prolongs this limit: its other hosts may notice a silent one later.
const CHAINED: u32 = 4;
/// Interval between two replies that report the progress.
const PROGRESS: Duration = Duration::from_millis(200);
/// Maximum length of a request, in bytes.
const REQUEST: u64 = 256 << 20;

/// Writes replies to the standard output, one line each.
#[derive(Clone, Debug, Default)]
pub struct Line(Arc<Mutex<bool>>);

impl Line {
    /// Writes a reply; returns false if the starter has ended.
    pub fn write(&self, reply: &Reply) -> bool {
        let mut has_begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(mut line) = serde_json::to_vec(reply) else { return false };
        line.push(b'\n');
        // The output of a login script may end without a line break.
        if !std::mem::replace(&mut has_begun, true) {
            line.insert(0, b'\n');
        }
        Standard::Output.write(&line).is_ok()
    }
}

/// Serves one request from the standard input. If `root` is given, only files below it are accessible. Ends the process
/// when the standard input ends.
///
/// # Errors
///
/// The request is malformed or cannot be served, and the starter could not be informed.
pub fn serve(root: Option<&Path>) -> Result<u8> {
    let line = Line::default();
    let served = read_request().and_then(|request| {
        let watching = thread::Builder::new().spawn(|| {
            // The starter sends nothing more, so this read returns when the starter has ended.
            _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            crate::pipeline::kill_commands();
            // The copy may fail only because the starter has ended, or be about to give them back.
            give_back_permissions();
            std::process::exit(0);
        });
        watching.map_err(|error| refused(&error))?;
        run(request, root, &line)
    });
    served.or_else(|error| {
        // The starter prints the error.
        if line.write(&Reply::Failed(Failure::from(&error))) { Ok(error.copy_status()) } else { Err(error) }
    })
}

fn read_request() -> Result<Request> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(REQUEST).read_until(b'\n', &mut bytes);
    let request = read.ok().and_then(|_| serde_json::from_slice(&bytes).ok());
    request.ok_or_else(|| {
        Error::new(Kind::Usage, "--server reads a request from its standard input; do not start it by hand, rdcp does")
    })
}

fn run(request: Request, root: Option<&Path>, line: &Line) -> Result<u8> {
    let options = request.link.options();
    let cannot_open = |root: &Path, error: Errno| Error::file("open", root, &error.into());
    let outcome = match request.role {
        Role::Source { paths, options: copy, to, into } => {
            let origin = match root {
                Some(root) => Origin::below(root).map_err(|error| cannot_open(root, error))?,
                None => Origin::default(),
            };
            let within = |path: &Vec<u8>| match root {
                Some(root) => root.join(OsStr::from_bytes(below(path))),
                None => OsStr::from_bytes(path).into(),
            };
            let paths: Vec<PathBuf> = paths.iter().map(within).collect();
            if root.is_some() && !to.is_empty() {
                let text = "a server with --root connects to no other host; copy through the host of the command";
                return Err(Error::new(Kind::Usage, text));
            }
            for path in paths.iter().filter(|_| root.is_some()) {
                // Checks the first path before waiting for the peer, so that an error is reported at once.
                origin.stat(path, copy.follows()).map_err(|error| Error::file("read", path, &error.into()))?;
            }
            let copy = CopyOptions { into, ..copy };
            copy::check_ancestry(&origin, &paths, &copy)?;
            copy::check_names(&origin, &paths, &copy)?;
            let listen = || listen(&request.key, &options, request.link.port, line, None, Purpose::Receive, CONNECT);
            let mut accept = to.is_empty().then(listen).transpose()?;
            let connect = |peer: Option<&Peer>| match (peer, &mut accept) {
                (Some(peer), _) => connect(peer, Purpose::Send, copy.patience(options.timeout), &options),
                (None, Some(accept)) => accept(),
                (None, None) => Err(Error::new(Kind::Unreachable, "all hosts are lost")),
            };
            with_progress(line, |progress| copy::send(connect, to, &origin, &paths, &copy, progress))?
        }
        Role::Sink { path, sources: (sources, contents), options: copy } => {
            let copy = CopyOptions { alone: root.is_some(), ..copy };
            let path = Path::new(OsStr::from_bytes(&path));
            // A forced command reveals nothing of what is above its root.
            let into = if root.is_some() { None } else { Ancestry::of(path) };
            let target = match root {
                Some(root) => {
                    let directory = Directory::open(root).map_err(|error| cannot_open(root, error))?;
                    Target::open_beneath(&directory, path, sources, contents, copy.dry_run)?
                }
                None => Target::open(path, sources, contents, copy.dry_run)?,
            };
            target.refuse_own_streams()?;
            let limit = CONNECT + if copy.chained { options.timeout * CHAINED } else { Duration::ZERO };
            let accept = listen(&request.key, &options, request.link.port, line, into, Purpose::Send, limit)?;
            with_progress(line, |progress| copy::receive(accept, &target, None, &copy, &options, progress))?
        }
        Role::Segment(_) if root.is_some() => {
            return Err(Error::new(Kind::Usage, "commands are not allowed here; use rdcp, for files below the root"));
        }
        Role::Segment(segment) => {
            let listening = |port| line.write(&Reply::Listening { port, addresses: addresses(), into: None });
            let (key, port) = (&request.key, request.link.port);
            let run = |_: &Progress| crate::pipeline::run_segment(&segment, key, &options, port, listening);
            let status = with_progress(line, run)?;
            line.write(&Reply::Finished { status, totals: Default::default(), failures: Vec::new() });
            return Ok(0);
        }
    };
    let failures = outcome.failures.iter().map(Failure::from).collect();
    line.write(&Reply::Finished { status: outcome.status(), totals: outcome.totals, failures });
    Ok(0)
}

/// Listens, and informs the starter of the port. Each call of the returned function accepts one connection.
fn listen<'l>(
    key: &'l [u8],
    options: &'l Options,
    port: u16,
    line: &Line,
    into: Option<Ancestry>,
    due: Purpose,
    limit: Duration,
) -> Result<impl FnMut() -> Result<Link> + use<'l>> {
    let listener = Listener::bind(None, port, options)?;
    line.write(&Reply::Listening { port: listener.port(), addresses: addresses(), into });
    Ok(move || {
        let (link, purpose) = listener.accept(key, Some(Instant::now() + limit))?;
        if purpose == due { Ok(link) } else { Err(Error::protocol("both sides send, or both receive")) }
    })
}

/// Runs a copy, and reports its progress. The starter takes a far side that reports none for one that has failed.
/// Therefore the segments of a pipeline call this function too.
fn with_progress<T>(line: &Line, run: impl FnOnce(&Progress) -> Result<T>) -> Result<T> {
    let progress = Arc::new(Progress::new(false));
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reporting = {
        let (line, progress, over) = (line.clone(), Arc::clone(&progress), Arc::clone(&over));
        let reporting = thread::Builder::new().spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                thread::park_timeout(PROGRESS);
                let now = progress.now();
                line.write(&Reply::Progress(now.listed, now.done, now.is_listed));
            }
        });
        reporting.map_err(|error| refused(&error))?
    };
    let outcome = run(&progress);
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    reporting.thread().unpark();
    // The thread only reports progress, so its failure is ignored.
    _ = reporting.join();
    outcome
}

/// Returns the local address of the ssh connection, if the process was started by ssh.
fn addresses() -> Vec<String> {
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    connection.split_whitespace().nth(2).map(str::to_owned).into_iter().collect()
}
