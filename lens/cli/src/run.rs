//! `lens run`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, io};

use clap::Args;
use rdma_lens::environment::{self, FAULTS, FORMAT, METRICS, SEED, TRACE, VARIABLES};

use crate::{counts, ctl};

/// Run a program, and show each call, request and completion of its RDMA devices
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  lens run ib_write_bw -d mlx5_0 192.0.2.1\n  lens run -c softrnic-run ibv_rc_pingpong -g 0 \
                  127.0.0.1\n  lens run --faults flap.txt --seed 7 ./service"
)]
pub(crate) struct Run {
    /// Count calls, requests, bytes, errors and times, and print the sums when the program exits
    #[arg(short, long)]
    count: bool,
    /// Also write the trace, if --count, --metrics or --faults is given
    #[arg(short, long)]
    trace: bool,
    /// Write to FILE; %p is the number of the process [default: the standard error]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the trace as JSON, an object a line; implies --trace
    #[arg(long)]
    json: bool,
    /// Serve the counts as Prometheus text at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Let calls and requests fail by the schedule in FILE: a line a fault, such as
    /// `after 100 posts on qp 1: complete with RETRY_EXC`
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Choose the faults that occur by chance
    #[arg(long, value_name = "N", requires = "faults")]
    seed: Option<u64>,
    /// Replace libibverbs and librdmacm, for programs that load them by dlopen and for machines without them
    #[arg(long)]
    libraries: bool,
    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Why the program was not run, and the exit status.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl Refusal {
    pub(crate) fn new(text: String) -> Self {
        Self { text, code: CANNOT_RUN }
    }
}

/// The exit status that shells use for a command that cannot be run.
const CANNOT_RUN: u8 = 126;
/// The command that sets up the library.
const RUNNER: &str = "softrnic-run";

/// Runs the program. Returns its exit status, or the reason why it cannot be run.
pub(crate) fn main(task: Run) -> Result<ExitCode, Refusal> {
    execute(task).map_err(Refusal::new)
}

fn execute(task: Run) -> Result<ExitCode, String> {
    if let Some(option) = task.program.first().filter(|word| word.as_encoded_bytes().starts_with(b"-")) {
        return Err(format!("unknown option {}; see `lens run --help`", option.display()));
    }
    let mut command = Command::new(find_runner()?);
    // Without the folder, the program runs, and `lens ctl` does not find it.
    if let Ok(folder) = ctl::make_folder() {
        command.env(ctl::FOLDER, folder);
    }
    VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    let output = prepare(task.output.as_deref())?;
    if let Some(address) = task.metrics {
        command.env(METRICS, address.to_string());
    }
    if task.trace || task.json || !(task.count || task.metrics.is_some() || task.faults.is_some()) {
        command.env(TRACE, &output).env(FORMAT, if task.json { "json" } else { "text" });
    }
    if let Some(path) = task.faults {
        // Errors of the schedule are reported before the program starts.
        environment::read_schedule(&path).map_err(|error| error.to_string())?;
        command.env(FAULTS, absolute(&path)?).env(SEED, task.seed.unwrap_or(0).to_string());
    }
    command.arg("--no-devices");
    if task.libraries {
        command.arg("--libraries");
    }
    command.arg("--").args(task.program);
    if task.count {
        return counts::run(command, &output);
    }
    let error = command.exec();
    Err(format!("cannot run {}: {error}", command.get_program().display()))
}

/// Empties the file, because processes append to it, and makes its path independent of the working directory.
fn prepare(output: Option<&Path>) -> Result<PathBuf, String> {
    let Some(path) = output.filter(|path| *path != Path::new("-")) else { return Ok(PathBuf::from("-")) };
    let path = absolute(path)?;
    let cannot = |error: io::Error| format!("cannot write {}: {error}", path.display());
    if path.to_string_lossy().contains("%p") {
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::metadata(folder).map_err(cannot)?;
    } else {
        File::create(&path).map_err(cannot)?;
    }
    Ok(path)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("cannot use the path {}: {error}", path.display()))
}

/// Finds `softrnic-run`.
pub(crate) fn find_runner() -> Result<PathBuf, String> {
    runner(env::current_exe().ok().as_deref(), env::var_os("PATH").as_deref())
        .ok_or_else(|| format!("cannot find {RUNNER} beside lens or in PATH; build both with `cargo xtask preload`"))
}

/// The file beside this program, or the first one in the path.
fn runner(own: Option<&Path>, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let beside = own.and_then(|file| Some(file.parent()?.join(RUNNER)));
    let in_path = path.into_iter().flat_map(env::split_paths).map(|folder| folder.join(RUNNER));
    beside.into_iter().chain(in_path).find(|file| file.is_file())
}
