//! A log of each test's completions, to compare two devices.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use sideway::ibverbs::completion::{
    GenericWorkCompletion, WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionStatus,
};

use crate::process;

/// The environment variable that names the log file; if it is not set, nothing is logged.
pub const FILE: &str = "SIDEWAY_TEST_COMPLETIONS";

/// Completions with their counts. Their order is not logged, because it varies with threads and queues.
pub type Completions = BTreeMap<String, usize>;

/// The completions of each test, by its name.
pub type Log = BTreeMap<String, Completions>;

/// Logs a completion for the test of this thread. With an error status, only the request and the status are defined.
///
/// # Panics
///
/// If the file cannot be written.
#[track_caller]
pub(crate) fn write(completion: &GenericWorkCompletion<'_>) {
    let Some(file) = env::var_os(FILE) else { return };
    let test = env::var(process::ALONE).ok().or_else(|| std::thread::current().name().map(str::to_owned));
    let status = completion.status();
    let mut line = format!("{}\twr_id {:#x}, {status:?}", test.unwrap_or_default(), completion.wr_id());
    if status == WorkCompletionStatus::Success {
        let opcode = completion.opcode();
        line += &format!(", {opcode:?}");
        use WorkCompletionOperationType as O;
        // The length of other completions is undefined.
        if matches!(
            opcode,
            O::Receive | O::ReceiveWriteWithImmediate | O::Read | O::AtomicCompareAndSwap | O::AtomicFetchAndAdd
        ) {
            line += &format!(", {} bytes", completion.byte_len());
        }
        // Only receives have defined flags, and only receives of datagrams a header flag. soft-RoCE sets further flags.
        if matches!(opcode, O::Receive | O::ReceiveWriteWithImmediate) {
            let flags = completion.wc_flags() & !WorkCompletionFlags::GlobalRoutingHeader;
            line += &format!(", {flags:?}");
            if flags.contains(WorkCompletionFlags::WithImmediate) {
                line += &format!(", immediate {:#x}", completion.imm_data());
            }
        }
    }
    line.push('\n');
    let written =
        OpenOptions::new().create(true).append(true).open(&file).and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Reads the log.
///
/// # Errors
///
/// The file cannot be read.
pub fn read(file: &Path) -> io::Result<Log> {
    let mut log = Log::new();
    for line in fs::read_to_string(file)?.lines() {
        let (test, completion) = line.split_once('\t').unwrap_or(("", line));
        *log.entry(test.to_owned()).or_default().entry(completion.to_owned()).or_default() += 1;
    }
    Ok(log)
}
