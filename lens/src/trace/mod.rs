//! The trace: threads record what they do, and one thread writes it.

mod ring;

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdma_mummy_sys::process;

use crate::moment::Moment;
use crate::record::{Record, What};
use crate::state;

/// How a trace is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// A line a record, as strace writes.
    #[default]
    Text,
    /// A JSON object a line, which `lens explain` reads.
    Json,
}

/// A call of a verb.
pub(crate) struct Call {
    pub(crate) at: u64,
    pub(crate) thread: u32,
    pub(crate) verb: &'static str,
    pub(crate) arguments: Vec<(String, String)>,
    pub(crate) result: String,
    pub(crate) error: Option<String>,
    pub(crate) is_injected: bool,
}

/// Where the trace goes, and what is not written yet.
struct Trace {
    sink: Option<(Format, Box<dyn Write + Send>)>,
    /// The first error of the sink, after which nothing is written.
    error: Option<io::Error>,
    /// Records after the last cut: another thread may still record one before them.
    later: Vec<Record>,
    has_thread: bool,
    is_ending: bool,
}

static TRACE: Mutex<Trace> =
    Mutex::new(Trace { sink: None, error: None, later: Vec::new(), has_thread: false, is_ending: false });
static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
static STOPPED: Condvar = Condvar::new();
/// How long the writer sleeps between two passes.
const PAUSE: Duration = Duration::from_millis(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn call(call: Call) {
    let mut calls = lock(&CALLS);
    if calls.len() < MOST {
        calls.push(call)
    } else {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many calls wait for the writer, which a reader of its pipe may keep waiting.
const MOST: usize = 100_000;
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// How long the end of the trace waits for the writer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Records a fork(2), with the kernel's release, which decides what happens to registered memory.
pub(crate) extern "C" fn forked() {
    if state::on() & state::TRACE == 0 {
        return;
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = ("kernel".to_owned(), release.trim().to_owned());
    let (at, thread) = (state::now(), state::thread());
    let (result, error) = (String::new(), None);
    call(Call { at, thread, verb: "fork", arguments: vec![kernel], result, error, is_injected: false });
}

#[inline]
pub(crate) fn moment(moment: Moment) {
    ring::push(moment);
}

/// Starts to write to `sink`.
pub(crate) fn start(format: Format, sink: Box<dyn Write + Send>) -> io::Result<()> {
    let mut trace = lock(&TRACE);
    trace.sink = Some((format, sink));
    trace.error = None;
    let program = std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let start = What::Start { program, process: std::process::id(), clock };
    trace.later = vec![Record { at: state::now(), thread: 0, what: start, injected: false }];
    if !trace.has_thread {
        let builder = thread::Builder::new().name("lens".to_owned());
        process::without_signals(|| builder.spawn(write_often))?;
        trace.has_thread = true;
    }
    state::switch_on(state::TRACE);
    Ok(())
}

/// Writes what is left, and closes the sink.
pub(crate) fn stop() -> io::Result<()> {
    state::switch_off(state::TRACE);
    let mut trace = lock(&TRACE);
    // The thread blocks signals, so a reader of a pipe that has ended does not end the program.
    trace.is_ending = true;
    STOPPED.notify_all();
    while trace.sink.is_some() && trace.has_thread {
        let (woken, waited) = STOPPED.wait_timeout(trace, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        trace = woken;
        if waited.timed_out() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the trace has no reader"));
        }
    }
    trace.is_ending = false;
    trace.error.take().map_or(Ok(()), Err)
}

/// Ends the trace also if its sink panics.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut trace = lock(&TRACE);
            (trace.sink, trace.has_thread) = (None, false);
            STOPPED.notify_all();
        }
    }
}

fn write_often() {
    let _ending = Ending;
    let mut trace = lock(&TRACE);
    while trace.sink.is_some() && !trace.is_ending {
        trace.write(state::now().saturating_sub(PAUSE.as_nanos() as u64));
        trace = STOPPED.wait_timeout(trace, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
    }
    let end = What::End { process: std::process::id() };
    trace.later.push(Record { at: state::now(), thread: 0, what: end, injected: false });
    trace.write(u64::MAX);
    let flushed = trace.sink.take().map_or(Ok(()), |(_, mut sink)| sink.flush());
    trace.error = trace.error.take().or(flushed.err());
    trace.has_thread = false;
    STOPPED.notify_all();
}

impl Trace {
    /// Writes all records up to the time `cut`, in their order.
    fn write(&mut self, cut: u64) {
        let mut moments = Vec::new();
        let dropped = ring::take(&mut moments) + DROPPED.swap(0, Ordering::Relaxed);
        let calls = std::mem::take(&mut *lock(&CALLS));
        self.later.extend(calls.into_iter().map(Record::from));
        self.later.extend(moments.into_iter().map(Record::from));
        self.later.sort_by_key(|record| record.at);
        let rest = self.later.split_off(self.later.partition_point(|record| record.at <= cut));
        let mut records = std::mem::replace(&mut self.later, rest);
        if dropped > 0 {
            let what = What::Dropped { moments: dropped };
            records.push(Record { at: state::now(), thread: 0, what, injected: false });
        }
        let Some((format, sink)) = &mut self.sink else { return };
        if self.error.is_some() {
            return;
        }
        // One write of whole lines, because other processes may append to the file.
        let mut lines = Vec::new();
        let written = records.iter().try_for_each(|record| match format {
            Format::Text => writeln!(lines, "{record}"),
            Format::Json => {
                serde_json::to_writer(&mut lines, record)?;
                writeln!(lines)
            }
        });
        let written = written.and_then(|()| sink.write_all(&lines));
        self.error = written.and_then(|()| sink.flush()).err();
    }
}

impl From<Call> for Record {
    fn from(call: Call) -> Self {
        let Call { at, thread, verb, arguments, result, error, is_injected } = call;
        // Some functions of the library have a macro of the name without the underscore.
        let verb = verb.trim_start_matches('_').to_owned();
        let what = What::Call { verb, arguments, result, error };
        Self { at, thread, what, injected: is_injected }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}
