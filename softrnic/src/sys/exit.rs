//! Handles `exit(3)`.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, Once};

use super::fork::PerProcess;
use super::unpoisoned;

/// The file of this process.
static FILE: PerProcess<Mutex<Option<PathBuf>>> = PerProcess::new(Mutex::new(None), Box::default);

/// Removes a file, of which a process has one, when this process exits. A process that is killed leaves it.
pub(crate) fn remove_at_exit(path: PathBuf) {
    extern "C" fn at_exit() {
        if let Ok(mut file) = FILE.get().try_lock()
            && let Some(path) = file.take()
        {
            // The user may have removed it.
            let _ = fs::remove_file(path);
        }
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handler has no requirements. If the registration fails for lack of memory, the file stays.
            unsafe { libc::atexit(at_exit) };
        }
    });
    *unpoisoned(FILE.get().lock()) = Some(path);
}
