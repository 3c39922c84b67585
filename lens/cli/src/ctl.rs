//! `lens ctl`: faults of softrnic's devices in a running process, through its control socket.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::{env, io};

use clap::Args;

use crate::run::{Refusal, find_runner};

/// Send a fault to softrnic's devices in a process that `lens run` has started
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  lens ctl 1234 port down\n  lens ctl 1234 port up on soft0\n  lens ctl 1234 device remove"
)]
pub(crate) struct Ctl {
    /// The number of the process
    process: u32,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The variable that names the folder of the control sockets.
pub(crate) const FOLDER: &str = "SOFTRNIC_CONTROL";

/// The folder of the control sockets of this user.
pub(crate) fn folder() -> PathBuf {
    env::var_os(FOLDER).filter(|value| !value.is_empty()).map_or_else(
        || {
            // SAFETY: the call has no requirements.
            let user = unsafe { libc::geteuid() };
            let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
            runtime.map_or_else(|| env::temp_dir().join(format!("lens-{user}")), |folder| folder.join("lens"))
        },
        PathBuf::from,
    )
}

/// Makes the folder, which only this user may use. softrnic checks an existing one.
pub(crate) fn make_folder() -> io::Result<PathBuf> {
    let folder = folder();
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder),
    }
}

/// Executes `softrnic-run --control`; returns only the reason why it cannot.
pub(crate) fn main(task: Ctl) -> Refusal {
    let runner = match find_runner() {
        Ok(runner) => runner,
        Err(text) => return Refusal::new(text),
    };
    let mut command = Command::new(&runner);
    command.arg("--control").arg(task.process.to_string()).args(task.command).env(FOLDER, folder());
    let error = command.exec();
    Refusal::new(format!("cannot run {}: {error}", runner.display()))
}
