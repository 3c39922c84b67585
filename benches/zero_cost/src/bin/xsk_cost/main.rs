//! Counts the instructions of loops over AF_XDP rings, with xsk and in C, with a simulated kernel in the same process.

mod loops;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use sideway_test_names::Folder;
use sideway_zero_cost::c::compiler;

/// The loops in C, in functions with the same names as those in Rust.
const SOURCE: &str = include_str!("../../../c/xsk.c");
/// Packets of a batch.
pub(crate) const BATCH: u32 = 64;

/// Count the instructions per packet of loops over AF_XDP rings, by xsk and by C
///
/// Fails if a loop exceeds its limit.
#[derive(Debug, Parser)]
#[command(name = "xsk_cost", version, max_term_width = 110)]
struct Arguments {
    /// Loop to run, instead of measuring all
    #[arg(value_enum, requires = "rounds")]
    task: Option<Task>,
    /// Number of batches
    rounds: Option<u64>,
}

/// The work of a loop for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Task {
    /// Receive, and return the frame to the fill ring
    Rxdrop,
    /// Take a completed frame, and send 64 bytes of it
    Txpush,
    /// Receive, and send the packet
    L2fwd,
}

impl Task {
    /// The limit of instructions per packet.
    fn limit(self) -> f64 {
        match self {
            Self::Rxdrop => 14.0,
            Self::Txpush => 13.0,
            Self::L2fwd => 31.0,
        }
    }
}

fn main() -> ExitCode {
    match carry_out(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // If printing fails too, no way to report remains.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(arguments: &Arguments) -> Result<ExitCode> {
    let mut out = io::stdout();
    if let (Some(task), Some(rounds)) = (arguments.task, arguments.rounds) {
        writeln!(out, "{:016x}", loops::run(task, rounds)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_within = measure(Folder::new().path(), &mut out)?;
    Ok(if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the table; `false` if a loop exceeds its limit.
fn measure(folder: &Path, out: &mut impl Write) -> Result<bool> {
    let ours = std::env::current_exe().context("cannot find this program")?;
    let c = compile(folder)?;
    let mut is_within = true;
    writeln!(out, "instructions per packet   xsk       C   limit")?;
    for task in Task::value_variants() {
        let name = task.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let (xsk, c) = (count(&ours, &name, folder)?, count(&c, &name, folder)?);
        writeln!(out, "{name:20} {xsk:8.1} {c:7.1} {:7.1}", task.limit())?;
        is_within &= xsk <= task.limit();
    }
    Ok(is_within)
}

/// Instructions per packet, in the loop's function and all functions that it calls.
fn count(program: &Path, task: &str, folder: &Path) -> Result<f64> {
    let run = |rounds: u64| -> Result<u64> {
        let file = folder.join("callgrind.out");
        let mut valgrind = Command::new("valgrind");
        valgrind.arg("--tool=callgrind").arg(format!("--toggle-collect=*{task}*"));
        valgrind.arg(format!("--callgrind-out-file={}", file.display()));
        let output = valgrind.arg(program).arg(task).arg(rounds.to_string()).output();
        let output = output.context("cannot run valgrind (the package valgrind)")?;
        ensure!(output.status.success(), "valgrind: {}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
        total.context("callgrind reports no total")
    };
    let [few, many] = [1000, 3000];
    Ok((run(many)? - run(few)?) as f64 / ((many - few) * u64::from(BATCH)) as f64)
}

fn compile(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (source, program) = (folder.join("xsk.c"), folder.join("xsk_c"));
    std::fs::write(&source, SOURCE).with_context(|| format!("cannot write {}", source.display()))?;
    let output = Command::new(compiler()).arg("-O2").arg("-o").arg(&program).arg(&source).output();
    let output = output.context("cannot run the C compiler (the package gcc)")?;
    ensure!(output.status.success(), "the C compiler: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}
