//! What the tests share: a trace in memory, and the turn of a test.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_lens::{Builder, Format, Lens, Record, What};

/// A trace that the test reads.
#[derive(Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Holds the lens of the process while a test runs.
pub(crate) struct Session {
    sink: Sink,
    pub(crate) lens: Lens,
    _turn: MutexGuard<'static, ()>,
}

impl Session {
    /// The turn of a test that installs the lens itself.
    pub(crate) fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lens that traces, and does more.
    pub(crate) fn new(format: Format, more: impl FnOnce(Builder) -> Builder) -> Self {
        let turn = Self::turn();
        let sink = Sink::default();
        let lens = more(Lens::builder()).trace(format, sink.clone()).install().unwrap();
        Self { sink, lens, _turn: turn }
    }

    /// A lens with these faults.
    pub(crate) fn with_faults(schedule: &str) -> Self {
        Self::new(Format::Json, |builder| builder.faults(schedule.parse().unwrap(), 1))
    }

    /// Ends the lens. Until the turn is dropped, no other test installs one.
    pub(crate) fn end(self) -> MutexGuard<'static, ()> {
        self.lens.finish().unwrap();
        self._turn
    }

    /// Ends the trace, and returns it.
    pub(crate) fn text(self) -> String {
        self.lens.finish().unwrap();
        String::from_utf8(self.sink.0.lock().unwrap().clone()).unwrap()
    }

    /// Ends the trace, and returns its records.
    pub(crate) fn records(self) -> Vec<Record> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A call of a verb: arguments, and the error.
pub(crate) struct Call<'a>(pub(crate) &'a [(String, String)], pub(crate) Option<&'a str>);

/// The calls of `verb`.
pub(crate) fn calls<'a>(records: &'a [Record], verb: &str) -> Vec<Call<'a>> {
    let calls = records.iter().filter_map(|record| match &record.what {
        What::Call { verb: name, arguments, error, .. } if name == verb => Some(Call(arguments, error.as_deref())),
        _ => None,
    });
    calls.collect()
}

/// Status, operation and request of each completion.
pub(crate) fn completions(records: &[Record]) -> Vec<(String, String, u64)> {
    let completions = records.iter().filter_map(|record| match &record.what {
        What::Completion { status, opcode, wr_id, .. } => Some((status.clone(), opcode.clone(), *wr_id)),
        _ => None,
    });
    completions.collect()
}

/// The trace that a process with only these objects would have written.
pub(crate) fn about(records: &[Record], names: &[&str]) -> Vec<Record> {
    let is_name = |name: &str| names.contains(&name);
    let is_pair = |number: u32| is_name(&format!("qp {number:#x}"));
    let is_about = |record: &&Record| match &record.what {
        What::Start { .. } | What::End { .. } => true,
        What::Call { arguments, result, .. } => is_name(result) || arguments.iter().any(|(_, value)| is_name(value)),
        What::Send(request) => is_pair(request.qp),
        What::Completion { qp, .. } => is_pair(*qp),
        _ => false,
    };
    records.iter().filter(is_about).cloned().collect()
}
