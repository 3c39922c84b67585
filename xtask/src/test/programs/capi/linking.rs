//! How programs are linked, and to which libraries.

use std::mem;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use super::{Door, Linked, said, well};
use crate::capi::SOURCES;
use crate::repo;

/// Checks that a program is linked only to libraries that every machine has, and to ours.
pub(super) fn needs_no_rdma_core(door: &Door) -> Result<()> {
    let mut files = vec![door.built.shared()];
    for name in ["devices", "loopback", "without"] {
        files.extend([door.program(name, Linked::Static), door.program(name, Linked::Shared)]);
    }
    for file in &files {
        let text = said(Command::new("readelf").args(["--dynamic", "--wide"]).arg(file).env("LC_ALL", "C"))?;
        let needed: Vec<&str> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
        let has = |name: &str| needed.iter().any(|line| line.contains(name));
        ensure!(has("[libc.so"), "readelf reports nothing for {}:\n{text}", file.display());
        for name in ["libibverbs", "librdmacm", "libmlx5", "libnl"] {
            ensure!(!has(name), "{} needs {name}:\n{}", file.display(), needed.join("\n"));
        }
        let is_shared = file.to_string_lossy().ends_with("-shared");
        ensure!(has("[librdma_mummy.so") == is_shared, "{}:\n{}", file.display(), needed.join("\n"));
    }
    Ok(())
}

/// The flags of pkg-config suffice to link a program, which then runs.
pub(super) fn links_by_pkg_config(door: &Door) -> Result<()> {
    let libraries = door.built.folder.join("lib");
    let source = repo::root()?.join(SOURCES).join("examples/devices.c");
    for package in ["rdma_mummy", "rdma_mummy-static"] {
        let program = door.programs.join(package);
        said(Command::new("cc").arg(&source).arg("-o").arg(&program).args(flags(door, package)?))?;
        let mut command = Command::new(&program);
        command.arg("--soft").env("LD_LIBRARY_PATH", &libraries);
        well(command, "soft0: InfiniBand channel adapter")?;
    }
    Ok(())
}

/// A program may link another Rust library, whose standard library shares a few symbol names with ours.
pub(super) fn beside(door: &Door) -> Result<()> {
    let sources = repo::root()?.join(SOURCES).join("tests");
    let other = door.programs.join("libbeside.a");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--crate-type=staticlib", "-O", "-o"]).arg(&other).arg(sources.join("beside.rs"));
    said(&mut command)?;
    for (package, option) in [("rdma_mummy-static", "-Wl,--allow-multiple-definition"), ("rdma_mummy", "-O2")] {
        let program = door.programs.join(format!("beside-{package}"));
        let mut link = Command::new("cc");
        link.arg(option).arg(sources.join("beside.c")).arg("-o").arg(&program).arg(&other).args(flags(door, package)?);
        said(&mut link)?;
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", door.built.folder.join("lib"));
        well(command, "all is well")?;
    }
    Ok(())
}

/// The output of pkg-config for a package.
pub(super) fn flags(door: &Door, package: &str) -> Result<Vec<String>> {
    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs", package]).env("PKG_CONFIG_PATH", door.built.folder.join("lib/pkgconfig"));
    Ok(words(&said(&mut ask)?))
}

/// The words in pkg-config's output, which is for a shell: a backslash precedes a space of a path and every other
/// character that a shell would interpret.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => word.extend(letters.next()),
            _ if letter.is_whitespace() => words.push(mem::take(&mut word)),
            _ => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// A program without knowledge of this library prints the same with libibverbs and with it, for any devices.
pub(super) fn as_libibverbs(door: &Door) -> Result<()> {
    let source = repo::root()?.join(SOURCES).join("tests/list.c");
    let theirs = door.programs.join("list-libibverbs");
    said(Command::new("cc").arg("-O2").arg(&source).arg("-o").arg(&theirs).arg("-libverbs"))?;
    let expected = output(Command::new(&theirs))?;
    for linked in [Linked::Static, Linked::Shared] {
        let ours = output(door.command("list", linked))?;
        ensure!(ours == expected, "libibverbs: {expected:?}\nlibrdma_mummy: {ours:?}");
    }
    Ok(())
}

fn output(mut command: Command) -> Result<Output> {
    command.output().with_context(|| format!("cannot run {}", command.get_program().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_from_pkg_config_may_contain_spaces() {
        let printed = "-I/some\\ where/lib/../include -L/some\\ where\\\\lib  -lrdma_mummy \n";
        assert_eq!(words(printed), ["-I/some where/lib/../include", r"-L/some where\lib", "-lrdma_mummy"]);
        assert_eq!(words("\n"), [""; 0]);
    }
}
