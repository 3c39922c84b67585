//! The softroce ring: the device tests in a guest with the kernel's own rdma_rxe.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::build::{self, Executable};
use super::device::{self, Module};
use super::results::Scanner;
use super::table::Finished;
use super::{Context, Results, host, running};
use crate::packages;
use crate::preload;
use crate::repo;
use crate::softroce::{self, Outcome, Request, Sinks, Started};

/// Runs each module in a process of its own: `$1` is the time limit of each, `$2` the program; then follow the name of
/// each module, the file for its completions or nothing, and its tests. [`COMPARISON`] comes last. The line [`ENDED`]
/// follows the output of a module.
const RUN_ALL: &str = r#"
limit=$1
program=$2
shift 2
while [ $# -gt 0 ]; do
    started=$(date +%s)
    export SIDEWAY_TEST_COMPLETIONS="$2"
    [ -n "$2" ] || unset SIDEWAY_TEST_COMPLETIONS
    echo
    echo "     Running $1 in the guest ($program)"
    timeout --kill-after=5 "$limit" "$program" --include-ignored --test-threads=1 --exact $3
    status=$?
    [ $status -ne 124 ] || echo "$1 took longer than $limit s"
    echo
    echo "     Ended $1: status $status after $(($(date +%s) - started)) s"
    shift 3
done
"#;

/// The start of the line that ends a module's output: its name, its status and its seconds follow.
const ENDED: &str = "     Ended ";

/// The module that compares the completions of the others with those of softrnic's device.
const COMPARISON: &str = "both_devices";
/// The variable that names the file for completions.
const COMPLETIONS: &str = "SIDEWAY_TEST_COMPLETIONS";

/// The guest that runs all modules.
pub(super) struct Guest {
    started: Started,
    modules: Vec<Module>,
    out: Output,
    err: Output,
}

/// Starts the guest, whose output is kept until [`Guest::finish`].
pub(super) fn start(context: &Context<'_>, guest: &mut Option<Guest>) -> Result<Finished> {
    let needs = [packages::SOFTROCE, packages::SOFTROCE_TESTS, packages::C_EXAMPLES];
    if let Err(error) = packages::require("the softroce ring", &needs) {
        return Ok(Finished::did_not_run(error.to_string()));
    }
    let ready = match softroce::ready(&context.options.guest.with_siw()) {
        Ok(ready) => ready,
        Err(error) => return Ok(Finished::did_not_run(format!("{error:#}"))),
    };
    let program = device::program(context)?;
    let (last, mut modules): (Vec<_>, Vec<_>) =
        device::modules(context, program)?.into_iter().partition(|module| module.name == COMPARISON);
    let logs = repo::target_folder(context.root)?.join("softroce/completions");
    if logs.exists() {
        fs::remove_dir_all(&logs).with_context(|| format!("cannot remove {}", logs.display()))?;
    }
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let finished = on_softrnic(context, program, &modules, &logs.join("soft"))?;
    // It needs the logs of all others.
    modules.extend(last);

    // A hanging module must not discard the results of the others.
    let timeout = context.options.timeout;
    let mut words: Vec<OsString> = vec!["/bin/sh".into(), "-c".into(), RUN_ALL.into(), "sh".into()];
    words.extend([OsString::from((timeout / 2).to_string()), program.file.clone().into()]);
    for module in &modules {
        let log = if is_compared(module) { logs.join("kernel").into() } else { OsString::new() };
        words.extend([OsString::from(&module.name), log, module.tests.join(" ").into()]);
    }
    let mut request = Request::new(words)?;
    request.environment.extend(build::programs(context.root)?);
    let preload = preload::build(context.root, build::BESIDE)?;
    request.environment.push(("SIDEWAY_SOFTRNIC_RUN".into(), preload.run.into()));
    request.environment.push(("SIDEWAY_COMPARED".into(), logs.into()));
    request.environment.push(("CARGO_MANIFEST_DIR".into(), program.target.folder.clone().into()));
    request.folder = program.target.folder.clone();

    let (out, err) = (Output::default(), Output::default());
    let sinks = {
        let (out, err) = (out.clone(), err.clone());
        move || Sinks { stdout: Box::new(out.clone()), stderr: Box::new(err.clone()) }
    };
    let started = ready.start(&request, Box::new(sinks), Duration::from_secs(timeout))?;
    *guest = Some(Guest { started, modules, out, err });
    Ok(finished)
}

/// Whether the module's completions are those of softrnic's device. Connections by address are the kernel's on a machine
/// that has such a device, and so are programs that want one. Only the guest has the huge pages of `memory`.
fn is_compared(Module { name, .. }: &Module) -> bool {
    let differs =
        name.starts_with("cm_") || name.contains("programs") || name.ends_with("pingpong") || name == "memory";
    !differs && name != COMPARISON
}

/// Runs the compared modules on softrnic's device, on this machine, and logs their completions into `log`. The ring
/// embedded does not run these tests again.
fn on_softrnic(context: &Context<'_>, program: &Executable, modules: &[Module], log: &Path) -> Result<Finished> {
    println!("\n     Running the compared modules on soft0 ({})", program.file.display());
    let mut command = program.command();
    host::prepare(&mut command);
    let compared = modules.iter().filter(|module| is_compared(module)).flat_map(|module| module.tests.clone());
    let tests = context.ran.get_or_init(|| compared.collect());
    command.env(COMPLETIONS, log).arg("--exact").args(tests);
    let mut finished = Finished::default();
    finished.add("the compared modules on soft0", running::stream(command)?);
    // These run in the guest only.
    finished.results.skipped = 0;
    Ok(finished)
}

impl Guest {
    /// Prints the output, and waits until all modules have run.
    pub(super) fn finish(self) -> Result<Finished> {
        self.out.print_to(std::io::stdout())?;
        self.err.print_to(std::io::stderr())?;
        let mut finished = Finished::default();
        match self.started.finish() {
            Ok(Outcome::Exited(0)) => {}
            Ok(Outcome::Exited(status)) => finished.fail(format!("the guest's script ended with status {status}")),
            Ok(Outcome::TimedOut) => finished.fail("the guest took too long".to_owned()),
            Ok(outcome @ Outcome::OutputClosed) => std::process::exit(outcome.exit_status().into()),
            Err(error) => finished.fail(format!("{error:#}")),
        }
        let text = self.out.text();
        let mut ended = endings(&text);
        println!();
        for module in &self.modules {
            let Some(place) = ended.iter().position(|one| one.name == module.name) else {
                finished.fail(format!("{} did not finish", module.name));
                continue;
            };
            let Ending { status, seconds, mut results, .. } = ended.swap_remove(place);
            results.for_device = module.ignored;
            println!("{:<28} {seconds:>5} s, {} tests", module.name, results.passed + results.failed);
            finished.results.add(&results);
            if status != 0 || results.failed != 0 {
                finished.fail(format!("{} ended with status {status}", module.name));
            }
        }
        Ok(finished.or_nothing_ran())
    }
}

/// How a module ended.
#[derive(Debug, PartialEq)]
struct Ending<'t> {
    name: &'t str,
    status: i32,
    seconds: u64,
    results: Results,
}

/// The modules that ended, from the guest's output.
fn endings(text: &str) -> Vec<Ending<'_>> {
    let mut scanner = Scanner::default();
    let mut endings = Vec::new();
    for line in text.split_inclusive('\n') {
        // Writing to a string never fails.
        let _ = scanner.write_all(line.as_bytes());
        let Some((name, rest)) = line.strip_prefix(ENDED).and_then(|line| line.split_once(": status ")) else {
            continue;
        };
        let mut numbers = rest.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let status = numbers.next().and_then(|status| i32::try_from(status).ok()).unwrap_or(-1);
        let seconds = numbers.next().unwrap_or_default();
        endings.push(Ending { name, status, seconds, results: scanner.finish() });
    }
    endings
}

/// A stream of the guest's output: keeps it, and prints it from [`print_to`](Self::print_to) on.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    text: Vec<u8>,
    printer: Option<Box<dyn Write + Send>>,
}

impl Output {
    /// Prints what is kept, and from now on what comes.
    fn print_to(&self, mut printer: impl Write + Send + 'static) -> std::io::Result<()> {
        let mut kept = self.lock();
        printer.write_all(&kept.text)?;
        kept.printer = Some(Box::new(printer));
        Ok(())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock().text).into_owned()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut kept = self.lock();
        kept.text.extend_from_slice(bytes);
        if let Some(printer) = &mut kept.printer {
            printer.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.lock().printer.as_mut().map_or(Ok(()), |printer| printer.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_has_its_results() {
        let text = "\n     Running xrc in the guest (p)\ntest result: ok. 3 passed; 0 failed; 1 ignored\n     \
                    Ended xrc: status 0 after 17 s\n     Running cm in the guest (p)\n\
                    test result: FAILED. 0 passed; 1 failed; 0 ignored\n     Ended cm: status 101 after 2 s\n\
                         Running hangs in the guest (p)\ntest result: ok. 9 passed; 0 failed; 0 ignored\n";
        let results = |passed, failed, skipped| Results { passed, failed, skipped, ..Results::default() };
        let expected = [
            Ending { name: "xrc", status: 0, seconds: 17, results: results(3, 0, 1) },
            Ending { name: "cm", status: 101, seconds: 2, results: results(0, 1, 0) },
        ];
        assert_eq!(endings(text), expected);
    }
}
