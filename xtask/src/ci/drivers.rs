//! The step `drivers`: the C files of rdma-core's drivers under AddressSanitizer, called as sideway calls them.
//!
//! `xtask/drivers` has a program for each driver. Calls that sideway refuses must damage memory there, because
//! otherwise this release gives no reason to refuse them. Calls that sideway passes must not. The release is that of
//! Debian 13.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use crate::packages;
use crate::repo;
use crate::test::table::Finished;

const SOURCE: &str = "http://deb.debian.org/debian/pool/main/r/rdma-core/rdma-core_56.1.orig.tar.gz";
const SHA256: &str = "63ce7f2baa7242c2dbc76375dac957c420187dd27f8c5e148efc07971ee522a8";
/// A program, its driver's file, and its cases of refused calls with the driver's function that damages memory.
type Program = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PROGRAMS: [Program; 4] = [
    ("siw", "siw/siw.c", &[("refused", "push_send_wqe")]),
    ("rxe", "rxe/rxe.c", &[("refused", "convert_send_wr")]),
    ("mlx4", "mlx4/qp.c", &[("refused", "set_bind_seg")]),
    ("hns", "hns/hns_roce_u_hw_v2.c", &[("refused", "set_sgl_rc"), ("refused_inline", "set_inline_data_list_rc")]),
];

/// Builds and runs the programs; does not run if the source or a tool is missing.
pub(super) fn check(root: &Path) -> Result<Finished> {
    for tool in ["curl", "sha256sum", "tar", "python3", "cc"] {
        if packages::find_program(tool).is_none() {
            return Ok(Finished::did_not_run(format!("it needs {tool}: install it")));
        }
    }
    let folder = repo::target_folder(root)?.join("drivers");
    fs::create_dir_all(&folder)?;
    let Some(source) = source(&folder)? else {
        return Ok(Finished::did_not_run(format!("{SOURCE} cannot be downloaded: connect to a network")));
    };
    let include = headers(&source)?;
    for (name, file, refused) in PROGRAMS {
        let program = compile(root, &source, &include, (name, file))?;
        let passed = run(&program, "passed")?;
        ensure!(
            passed.status.success(),
            "{name}: calls that sideway passes end with {}:\n{}",
            passed.status,
            text(&passed)
        );
        for (case, function) in refused {
            let output = run(&program, case)?;
            let finding = finding(&text(&output), function);
            let finding = finding.with_context(|| {
                let (status, text) = (output.status, text(&output));
                format!(
                    "{name} {case}: calls that sideway refuses do no harm in {function}, and end with {status}:\n{text}"
                )
            })?;
            println!("{name}: passed calls are clean; {case}: {finding} in {function}");
        }
    }
    Ok(Finished::default())
}

/// The unpacked source, with the expected hash; `None` if there is no network.
fn source(folder: &Path) -> Result<Option<PathBuf>> {
    let archive = folder.join("rdma-core.tar.gz");
    if !archive.exists() {
        let draft = folder.join("draft");
        let status = Command::new("curl").args(["-sfLm", "120", "-o"]).arg(&draft).arg(SOURCE).status()?;
        if !status.success() {
            return Ok(None);
        }
        fs::rename(draft, &archive)?;
    }
    let sum = succeed(Command::new("sha256sum").arg(&archive))?;
    let sum = String::from_utf8_lossy(&sum.stdout).into_owned();
    ensure!(sum.starts_with(SHA256), "{} has the hash {sum}, not {SHA256}: remove it", archive.display());
    let source = folder.join("source");
    if !source.exists() {
        let draft = folder.join("unpacked");
        fs::create_dir_all(&draft)?;
        succeed(Command::new("tar").args(["xzf"]).arg(&archive).args(["--strip-components=1", "-C"]).arg(&draft))?;
        fs::rename(draft, &source)?;
    }
    Ok(Some(source))
}

/// Creates a folder of headers like rdma-core's build.
fn headers(source: &Path) -> Result<PathBuf> {
    let include = source.join("include");
    let kernel = include.join("kernel-abi");
    fs::create_dir_all(&kernel)?;
    let links = [("infiniband", "libibverbs"), ("util", "util"), ("ccan", "ccan"), ("rdma", "kernel-headers/rdma")];
    for (name, folder) in links {
        let link = include.join(name);
        if !link.exists() {
            symlink(source.join(folder), link)?;
        }
    }
    for entry in fs::read_dir(source.join("kernel-headers/rdma"))? {
        let header = entry?.path();
        if let Some(name) = header.file_name().filter(|_| header.extension().is_some_and(|end| end == "h")) {
            let script = source.join("buildlib/make_abi_structs.py");
            succeed(Command::new("python3").arg(script).arg(&header).arg(kernel.join(name)))?;
        }
    }
    let found = ["STATEMENT_EXPR", "TYPEOF", "BUILTIN_TYPES_COMPATIBLE_P", "ISBLANK"];
    let config: String = found.iter().map(|what| format!("#define HAVE_{what} 1\n")).collect();
    fs::write(include.join("config.h"), config)?;
    Ok(include)
}

fn compile(root: &Path, source: &Path, include: &Path, (name, file): (&str, &str)) -> Result<PathBuf> {
    let driver = source.join("providers").join(file);
    let program = include.join(format!("{name}-under-asan"));
    let mut command = Command::new("cc");
    // Not position-independent, so that the linker resolves calls without a library to address 0.
    command.args(["-g", "-O1", "-no-pie", "-fsanitize=address", "-D_GNU_SOURCE", "-w"]);
    command.arg("-include").arg(include.join("config.h"));
    command.arg(format!("-DDRIVER=\"{}\"", driver.display()));
    command.arg("-I").arg(include).arg("-I").arg(driver.parent().context("a file without a folder")?);
    command.arg("-Wl,--unresolved-symbols=ignore-all");
    command.arg("-o").arg(&program).arg(root.join("xtask/drivers").join(format!("{name}.c")));
    succeed(&mut command)?;
    Ok(program)
}

fn run(program: &Path, case: &str) -> Result<Output> {
    let mut command = Command::new(program);
    let output = command.arg(case).env("ASAN_OPTIONS", "detect_leaks=0").output();
    output.with_context(|| format!("cannot run {}", program.display()))
}

fn succeed(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}:\n{}", output.status, text(&output));
    }
    Ok(output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The kind of damage in a report, if one of its two innermost frames is in this function. A call of a function that
/// was not linked does not count: its innermost frame has no name.
fn finding(report: &str, function: &str) -> Option<String> {
    let (_, report) = report.split_once("ERROR: AddressSanitizer: ")?;
    let kind = report.split(' ').next()?.to_owned();
    let frames: Vec<&str> = report.lines().map(str::trim).filter(|line| line.starts_with('#')).take(2).collect();
    let is_named = frames.first()?.contains(" in ");
    let is_there = frames.iter().any(|frame| frame.contains(&format!(" in {function} ")));
    (is_named && is_there).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::finding;

    #[test]
    fn only_damage_in_the_function_counts() {
        let report = |frames: &str| format!("==1==ERROR: AddressSanitizer: SEGV on unknown address\n{frames}");
        let there = report("    #0 0x1 in bswap a.h:1\n    #1 0x2 in set_bind_seg qp.c:139\n    #2 0x3 in main m.c:1");
        assert_eq!(finding(&there, "set_bind_seg").as_deref(), Some("SEGV"));
        assert_eq!(finding(&there, "main"), None);
        let not_linked = report("    #0 0x0  (<unknown module>)\n    #1 0x2 in set_bind_seg qp.c:139");
        assert_eq!(finding(&not_linked, "set_bind_seg"), None);
        assert_eq!(finding("", "set_bind_seg"), None);
    }
}
