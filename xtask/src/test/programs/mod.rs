//! The programs ring: C programs on softrnic, the distribution's unmodified and some of our own.
//!
//! `rows` and `others` list the runs, `process` runs one program with a time limit, `play` runs a row. `capi` has the
//! programs that link `librdma_mummy`.

mod capi;
mod lens;
mod others;
mod play;
pub(super) mod process;
mod rows;
mod table;
mod ucx;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use sideway_test_names::Folder;

use super::{Context, Extent, Results, build};
use crate::preload::{self, Built};
use crate::test::table::Finished;
use crate::{package, packages, repo};

/// Our own programs, each with its compiler and libraries.
const OWN: &[(&str, &str, &[&str])] = &[
    ("one_process.c", "cc", &["-libverbs", "-lrdmacm", "-lpthread"]),
    ("by_version.c", "cc", &["-ldl"]),
    ("files.c", "cc", &["-ldl"]),
    ("closes.c", "cc", &["-libverbs"]),
    ("cancel.c", "cc", &["-libverbs", "-lrdmacm", "-lpthread"]),
    ("mpi.c", "mpicc", &[]),
    ("shmem.c", "oshcc", &[]),
    ("gloo.cc", "c++", &["-lgloo", "-libverbs"]),
];

/// The list of dapltest's adapters, and our scripts.
const COPIED: &[&str] = &["dat.conf", "qemu.sh", "tgt.sh", "verbs.py", "wheels.py", "wheels.sh"];
/// The check of the wheel of softrnic-run.
const WHEEL: &str = "wheel_of_softrnic";
/// What is built besides softrnic-run. The ring readme uses libtrespass.
pub(super) const BESIDE: &[&str] = &["--package", "trespass-sockets", "--package", "trespass-capi"];

/// Runs the rows: in the gate, one for each program and each way to start it, without those that download programs.
pub(crate) fn run(context: &Context<'_>) -> Result<Finished> {
    if let Err(error) = packages::require("the programs ring", &[packages::PROGRAMS]) {
        return Ok(Finished::did_not_run(error.to_string()));
    }
    let root = context.root;
    let is_full = context.extent == Extent::Full;
    let only = context.options.only.as_str();
    // The library of another profile is a different one.
    let profile = if is_full { "for-c" } else { "release" };
    let mut finished = Finished::default();
    let mut seen = Vec::new();
    let is_first = |row: &&table::Row| {
        let kind = row.kind();
        let is_first = !seen.contains(&kind);
        seen.push(kind);
        is_first || row.always || is_full || !only.is_empty()
    };
    let is_wanted = |row: &&table::Row| is_full || !only.is_empty() || !row.is_large();
    let rows: Vec<_> = rows().filter(|row| row.name.contains(only)).filter(is_wanted).filter(is_first).collect();
    let checks: Vec<_> = capi::CHECKS.iter().filter(|check| check.name.contains(only)).collect();

    let mut judge = |name: &'static str, run: &dyn Fn() -> Result<()>| {
        let started = Instant::now();
        let result = run();
        let time = started.elapsed().as_secs_f64();
        let one = match result {
            Ok(()) => {
                println!("test programs::{name} ... ok ({time:.1} s)");
                Results { passed: 1, ..Results::default() }
            }
            Err(error) => {
                println!("test programs::{name} ... FAILED ({time:.1} s)\n{error:#}\n");
                finished.fail(name.to_owned());
                Results { failed: 1, failures: vec![format!("{name}\n{error:#}")], ..Results::default() }
            }
        };
        finished.results.add(&one);
    };
    let has_wheel = WHEEL.contains(only);
    if !rows.is_empty() || has_wheel {
        let built = preload::build(root, &[build::BESIDE, BESIDE].concat())?;
        let release = repo::target_folder(root)?.join("release");
        let (stride, sockets) = (release.join("stride-perf"), release.join("trespass-run"));
        let place = Place { own: compile(root, &built)?, built, stride, sockets };
        for row in rows {
            judge(row.name, &|| play::play(row, &place));
        }
        if has_wheel {
            judge(WHEEL, &|| wheel(root, &place.built));
        }
    }
    if !checks.is_empty() {
        let door = capi::build(root, profile)?;
        for check in checks {
            judge(check.name, &|| check.run(&door));
        }
    }
    Ok(finished.or_nothing_ran())
}

/// All rows, those with the fewest requirements first.
fn rows() -> impl Iterator<Item = &'static table::Row> {
    rows::ROWS.iter().chain(ucx::ROWS).chain(others::ROWS).chain(lens::ROWS)
}

/// Paths of the build.
#[derive(Debug)]
struct Place {
    built: Built,
    own: PathBuf,
    /// stride-perf, and trespass-run.
    stride: PathBuf,
    sockets: PathBuf,
}

/// Compiles our own programs against the distribution's headers.
fn compile(root: &Path, built: &Built) -> Result<PathBuf> {
    let folder = built.libraries.with_file_name("programs");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let sources = root.join("softrnic/preload/tests");
    let sockets = root.join("trespass/sockets/tests/sockets.sh");
    for (name, compiler, libraries) in OWN {
        let source = sources.join(name);
        let mut command = Command::new(compiler);
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]).arg(&source);
        command.arg("-o").arg(folder.join(name).with_extension("")).args(*libraries);
        let status = command.status().with_context(|| format!("cannot run {compiler}"))?;
        ensure!(status.success(), "compiling {}: {status}", source.display());
    }
    for name in COPIED {
        let copy = std::fs::copy(sources.join(name), folder.join(name));
        copy.with_context(|| format!("cannot copy {name} from {}", sources.display()))?;
    }
    std::fs::copy(&sockets, folder.join("sockets.sh")).with_context(|| format!("cannot copy {}", sockets.display()))?;
    Ok(folder)
}

/// Installs the wheel of softrnic-run by pip, into a folder of its own, and runs a program with it in both ways.
fn wheel(root: &Path, built: &Built) -> Result<()> {
    let folder = Folder::new();
    let wheel = package::wheel::pack(root, built, folder.path())?;
    let installed = folder.join("installed");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", "--target"]);
    pip.arg(&installed).arg(&wheel);
    preload::run(pip)?;
    for options in [&["ibv_devices"][..], &["--libraries", "ibv_devices"]] {
        let mut command = Command::new(installed.join("bin/softrnic-run"));
        command.args(options).env_remove("SOFTRNIC_PRELOAD").env_remove("SOFTRNIC_DEVICES");
        let output = command.output().context("cannot run the installed softrnic-run")?;
        let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(text.contains("soft0"), "softrnic-run {options:?} lists no soft0:\n{text}{error}");
    }
    Ok(())
}
