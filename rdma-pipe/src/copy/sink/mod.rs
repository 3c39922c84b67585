//! The side that receives files. One thread receives and creates directories; other threads write.

mod device;
mod have;
mod opened;
mod receiving;
mod rest;
mod trial;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use self::device::to_device;
use self::opened::Opened;
pub use self::opened::give_back_permissions;
use self::receiving::Receiving;
use super::Outcome;
use super::chain;
use super::options::CopyOptions;
use super::progress::Progress;
use super::target::{Inside, Target};
use super::writer::{Writers, count};
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Link, Options};
use crate::proto::{Frame, Totals};
use crate::thread::start;
use crate::tree::Written;

/// Maximum number of tasks, such as blocks, that wait for a writing thread.
const AHEAD: usize = 4;

/// The error of a file that would be written into a device on a host that forwards.
fn only_last(path: &Path) -> Error {
    let text = "a device can be a destination only on the last host of a chain";
    Error::new(Kind::File, format!("cannot write to {}: {text}", escape(path)))
}

/// Receives files and directories. `expected` contains the requested names if this side requested them. If the
/// connection breaks or a host of a chain is lost, the copy continues over the next connection that `connect` returns.
///
/// # Errors
///
/// The copy as a whole failed: the connection broke and could not be restored, or the peer's data is malformed or
/// altered.
pub fn receive(
    mut connect: impl FnMut() -> Result<Link>,
    target: &Target,
    expected: Option<&[Vec<u8>]>,
    options: &CopyOptions,
    links: &Options,
    progress: &Progress,
) -> Result<Outcome> {
    let mut link = connect()?;
    let mut kept = Kept { done: None, opened: Opened::new(target), written: Written::default() };
    let failed = |kept: &Kept, error| {
        kept.opened.give_back();
        error
    };
    loop {
        let cause = match session(link, target, expected, options, links, progress, &mut kept) {
            Err(error) if may_continue(&error, options) && !target.has_begun() => error,
            Err(error) => return kept.done.take().ok_or_else(|| failed(&kept, error)),
            Ok(outcome) => return Ok(outcome),
        };
        log::info!("{cause}; waiting for another connection");
        link = match (connect(), kept.done.take()) {
            (Ok(link), _) => link,
            (Err(_), Some(outcome)) => return Ok(outcome),
            (Err(_), None) => return Err(failed(&kept, cause)),
        };
        progress.restart();
    }
}

/// Whether the copy may continue over another connection. In a chain, the source removes a silent host and connects its
/// neighbours.
fn may_continue(error: &Error, options: &CopyOptions) -> bool {
    error.is_disconnect() || (options.chained && error.kind() == Kind::TimedOut)
}

/// What outlives a connection.
#[derive(Debug)]
struct Kept {
    /// The result of the copy, if it is complete but the source may not have received the report.
    done: Option<Outcome>,
    opened: Opened,
    written: Written,
}

/// Receives over one connection. Sets the result as soon as the copy is complete.
fn session(
    mut link: Link,
    target: &Target,
    expected: Option<&[Vec<u8>]>,
    options: &CopyOptions,
    links: &Options,
    progress: &Progress,
    kept: &mut Kept,
) -> Result<Outcome> {
    let (options, next, named) = match link.frame()? {
        Frame::Begin { again, chain } => {
            let options = CopyOptions { again, ..options.clone() };
            let refused = |error| {
                link.sender.abort(&error);
                link.sender.flush();
                error
            };
            if options.alone && !chain.is_empty() {
                let text = "a server with --root connects to no other host, so that it can only be the last of a chain";
                return Err(refused(Error::new(Kind::Usage, text)));
            }
            let named = if chain.is_empty() { None } else { target.name_of_device().transpose().map_err(refused)? };
            let next = chain::open(&link.sender, again, chain, options.patience(links.timeout), links)?;
            (options, next, named)
        }
        _ => return Err(Error::protocol("the sender sent an unexpected frame")),
    };
    let target = named.as_ref().unwrap_or(target);
    let (sender, next) = (link.sender.clone(), next.as_ref());
    let writers = Writers {
        sender: &sender,
        next,
        options: &options,
        progress,
        failures: Mutex::default(),
        written: &kept.written,
        linkable: Mutex::default(),
        forward_failed: AtomicBool::new(false),
        broken: Mutex::default(),
    };
    let finished = thread::scope(|scope| {
        let downstream = next.map(|next| start(scope, || next.take_answers(&sender))).transpose()?;
        let received = match target {
            Target::Device(_, path) if next.is_some() => Err(only_last(path)),
            Target::Device(file, path) => to_device(&mut link, file, path, &writers).map(|totals| (totals, None)),
            Target::Inside(inside) => thread::scope(|scope| {
                let root = inside.root.with(options.gives_way());
                let root = root.map_err(|error| Error::file("open", Path::new("the destination"), &error.into()))?;
                let into = Inside { root: Arc::new(root), ..inside.clone() };
                let tasks = (0..count())
                    .map(|_| {
                        let (tasks, taken) = mpsc::sync_channel(AHEAD);
                        let (writers, root) = (&writers, Arc::clone(&into.root));
                        start(scope, move || writers.run(taken, &root))?;
                        Ok(tasks)
                    })
                    .collect::<Result<_>>()?;
                let mut receiving = Receiving::new(into, expected, &kept.opened, &writers, tasks);
                let ended = receiving.run(&mut link);
                receiving.tasks.clear();
                receiving.open.clear();
                // The last steps run later, because all writing threads must have ended before.
                ended.map(|totals| (totals, Some(receiving)))
            }),
        };
        let finished = received.and_then(|(totals, rest)| {
            if let Some(error) = writers.broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(error);
            }
            writers.forward(|| Frame::End(totals))?;
            if let Some(rest) = rest {
                rest.finish(totals.failed == 0)?;
            }
            Ok(totals)
        });
        let (Some(next), Some(downstream)) = (next, downstream) else { return finished };
        if finished.is_err() && !writers.forward_failed.load(Relaxed) {
            next.end();
        }
        let theirs = downstream.join().unwrap_or_else(|_| Err(Error::protocol("the receiving thread panicked")));
        let (ours, theirs) = (finished?, theirs?);
        if (ours.entries, ours.files, ours.bytes) != (theirs.entries, theirs.files, theirs.bytes) {
            return Err(Error::protocol("the next host of the chain received other files or bytes; start again"));
        }
        Ok(Totals { failed: theirs.failed, ..ours })
    });
    match finished {
        Ok(mut totals) => {
            let failures = std::mem::take(&mut *writers.failures.lock().unwrap_or_else(PoisonError::into_inner));
            totals.failed += failures.len() as u64;
            let outcome = Outcome { totals, carried: totals.bytes, failures };
            kept.done = Some(outcome.clone());
            kept.opened.forget();
            link.sender.frame(&Frame::Report(totals))?;
            link.wait_for_close()?;
            Ok(outcome)
        }
        Err(error) => {
            // If the connection broke, the source connects again.
            if !may_continue(&error, &options) {
                link.sender.abort(&error);
                link.sender.flush();
            }
            Err(error)
        }
    }
}
