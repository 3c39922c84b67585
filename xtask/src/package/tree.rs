//! An installation below a prefix: `bin`, `lib`, `include` and `share`. It can be moved as a whole.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{put, wheel};
use crate::capi::point;
use crate::preload::Built;

/// The folder of documents.
pub(super) const DOC: &str = "share/doc/sideway";
/// Documents and examples. They keep their paths, so that links between them lead somewhere.
const DOCUMENTS: [&str; 16] = [
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "lens/README.md",
    "rdma-mummy-sys/capi/README.md",
    "rdma-mummy-sys/capi/examples",
    "rdma-pipe/README.md",
    "rdma-pipe/docs",
    "softrnic/README.md",
    "softrnic/PROGRAMS.md",
    "stride/README.md",
    "stride/licenses",
    "trespass/capi/README.md",
    "trespass/capi/examples",
    "trespass/sockets/README.md",
];
/// Each shell, the file of its completions for a program `@`, and completions for a program that runs others.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "bash-completion/completions/@", "complete -F _command @\n"),
    ("zsh", "zsh/site-functions/_@", "#compdef @\n_precommand\n"),
    ("fish", "fish/vendor_completions.d/@.fish", "complete -c @ -x -a '(__fish_complete_subcommand)'\n"),
];

/// Where the programs and libraries were built.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    pub(super) softrnic: &'a Built,
    /// The folder of stride-perf and of rdma-pipe's programs.
    pub(super) release: &'a Path,
    /// The folder of trespass-run and its library.
    pub(super) sockets: &'a Path,
    /// The folders of the libraries for C, each with `lib` and `include`.
    pub(super) libraries: &'a [PathBuf],
}

/// Makes the tree.
pub(super) fn lay_out(root: &Path, programs: &Programs<'_>, prefix: &Path) -> Result<()> {
    let sockets =
        [("trespass-run", "bin/trespass-run"), ("libtrespass_sockets.so", "libexec/trespass/libtrespass_sockets.so")];
    let sockets = sockets.map(|(name, to)| (programs.sockets.join(name), to));
    for (from, to) in wheel::files(programs.softrnic).into_iter().chain(sockets) {
        put(&from, &prefix.join(to))?;
    }
    for name in ["softrnic-run", "trespass-run", "lens"] {
        runner(prefix, name, &[])?;
        completions(prefix, name)?;
    }
    for command in ["run", "explain", "ctl"] {
        runner(prefix, &format!("lens-{command}"), &["lens", command])?;
    }
    for name in ["rdcp", "rdpipe", "rdrecv", "rdsend", "stride-perf"] {
        let program = prefix.join("bin").join(name);
        put(&programs.release.join(name), &program)?;
        let by = if name == "stride-perf" { "completions" } else { "--generate" };
        for (shell, file, _) in SHELLS {
            write(&prefix.join("share").join(file.replace('@', name)), &printed(&program, &[by, shell])?)?;
        }
        if name == "stride-perf" {
            manual(prefix, &program, name, &mut vec!["man".to_owned()])?;
        } else {
            page(prefix, name, &printed(&program, &["--generate", "man"])?)?;
        }
    }
    for (library, part) in programs.libraries.iter().flat_map(|folder| [(folder, "lib"), (folder, "include")]) {
        copy(&library.join(part), &prefix.join(part))?;
    }
    let documents = prefix.join(DOC);
    for path in DOCUMENTS {
        copy(&root.join(path), &documents.join(path))?;
    }
    Ok(())
}

/// Writes the manual pages of a program that prints them for each command: that of `words`, and of those that it names.
fn manual(prefix: &Path, program: &Path, name: &str, words: &mut Vec<String>) -> Result<()> {
    let text = printed(program, words)?;
    page(prefix, name, &text)?;
    let commands = text.lines().filter_map(|line| {
        let line = line.replace("\\-", "-");
        Some(line.strip_prefix(name)?.strip_prefix('-')?.strip_suffix("(1)")?.to_owned())
    });
    for command in commands.filter(|command| command != "help") {
        words.push(command.clone());
        manual(prefix, program, &format!("{name}-{command}"), words)?;
        words.pop();
    }
    Ok(())
}

/// Writes the manual page of a program that runs another, or of its command, which is its `--help`.
fn runner(prefix: &Path, name: &str, words: &[&str]) -> Result<()> {
    let (program, command) = words.split_first().map_or((name, words), |(program, command)| (*program, command));
    let help = printed(&prefix.join("bin").join(program), &[command, &["--help"]].concat())?;
    let (title, rest) = help.split_once("\n\n").context("the help has no title")?;
    let escaped = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    // No line of the text begins with a full stop or an apostrophe, which would be commands.
    ensure!(!rest.lines().any(|line| line.starts_with(['.', '\''])), "{name} --help has a line that roff misreads");
    let text = format!(
        ".TH {name} 1\n.SH NAME\n{0} \\- {1}\n.SH DESCRIPTION\n.nf\n{2}.fi\n",
        escaped(name),
        escaped(title),
        escaped(rest)
    );
    page(prefix, name, &text)
}

/// Writes the completions of a program that runs another.
fn completions(prefix: &Path, name: &str) -> Result<()> {
    for (_, file, text) in SHELLS {
        write(&prefix.join("share").join(file.replace('@', name)), &text.replace('@', name))?;
    }
    Ok(())
}

fn page(prefix: &Path, name: &str, text: &str) -> Result<()> {
    write(&prefix.join("share/man/man1").join(format!("{name}.1")), text)
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// What a program prints.
fn printed<S: AsRef<OsStr> + Debug>(program: &Path, words: &[S]) -> Result<String> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "{} {words:?} failed", program.display());
    String::from_utf8(output.stdout).with_context(|| format!("{} {words:?} printed no text", program.display()))
}

/// Copies a file or a folder. Links stay links.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        return match fs::read_link(from) {
            Ok(target) => point(to, &target),
            Err(_) => put(from, to),
        };
    }
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let name = entry?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sideway_test_names::Folder;

    use super::*;
    use crate::repo;

    /// A program that answers each request for a page.
    const PROGRAM: &str = "#!/bin/sh\n\
        case \"$*\" in\n\
        man) printf 'stride\\\\-perf\\\\-write(1)\\nstride\\\\-perf\\\\-help(1)\\n' ;;\n\
        'man write') echo 'stride\\-perf\\-write\\-bw(1)' ;;\n\
        *) printf 'Title\\n\\nUsage: %s\\n' \"$*\" ;;\n\
        esac\n";

    #[test]
    fn every_program_has_pages_completions_and_documents() {
        let folder = Folder::new();
        let built = folder.join("built");
        let softrnic = Built { run: built.join("softrnic-run"), libraries: built.join("lib") };
        let programs = ["softrnic-run", "trespass-run", "lens", "rdcp", "rdpipe", "rdrecv", "rdsend", "stride-perf"]
            .map(|name| built.join(name));
        let others = ["libsoftrnic_preload.so", "libtrespass_sockets.so", "lib/libibverbs.so.1", "lib/librdmacm.so.1"];
        for file in programs.iter().cloned().chain(others.map(|name| built.join(name))) {
            write(&file, PROGRAM).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let library = folder.join("c");
        write(&library.join("lib/libx.so.0"), "").unwrap();
        write(&library.join("include/x.h"), "").unwrap();
        point(&library.join("lib/libx.so"), Path::new("libx.so.0")).unwrap();
        let prefix = folder.join("prefix");
        let from = Programs { softrnic: &softrnic, release: &built, sockets: &built, libraries: &[library] };
        lay_out(&repo::root().unwrap(), &from, &prefix).unwrap();

        let text = |path: &str| fs::read_to_string(prefix.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        for program in programs {
            let name = program.file_name().unwrap().to_str().unwrap();
            let pages = ["bin/@", "share/man/man1/@.1"].into_iter().map(str::to_owned);
            for path in pages.chain(SHELLS.map(|(_, file, _)| format!("share/{file}"))) {
                assert_ne!(text(&path.replace('@', name)), "");
            }
            assert_eq!(fs::metadata(prefix.join("bin").join(name)).unwrap().permissions().mode() & 0o777, 0o755);
        }
        assert!(text("share/man/man1/stride-perf-write-bw.1").contains("man write bw"));
        assert!(!prefix.join("share/man/man1/stride-perf-help.1").exists());
        assert!(text("share/man/man1/softrnic-run.1").contains("softrnic\\-run \\- Title"));
        assert!(text("share/man/man1/lens-explain.1").contains("explain \\-\\-help"));
        assert_eq!(fs::read_link(prefix.join("lib/libx.so")).unwrap(), Path::new("libx.so.0"));
        for path in ["include/x.h", "libexec/softrnic/librdmacm.so.1", "libexec/trespass/libtrespass_sockets.so"] {
            assert!(prefix.join(path).is_file(), "{path}");
        }
        assert!(text("share/doc/sideway/rdma-pipe/README.md").contains("rdcp"));
    }
}
