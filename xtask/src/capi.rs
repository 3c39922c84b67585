//! `cargo xtask capi`: the functions of rdma-core as one library for C and C++ programs.
//!
//! cargo builds the static library. The shared one is the same code, linked by `cc` with a version script.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::packages;
use crate::preload::{place, rename, run};
use crate::repo;

/// The package.
const PACKAGE: &str = "rdma-mummy-capi";
/// The folder of the package's sources.
pub(crate) const SOURCES: &str = "rdma-mummy-sys/capi";
/// The profile of the released libraries, and its folder in cargo's target.
const PROFILE: &str = "for-c";
/// The static library.
const STATIC: &str = "librdma_mummy.a";
/// The soname of the shared library.
const SHARED: &str = "librdma_mummy.so.0";
/// The name by which the linker finds the shared library.
const LINK: &str = "librdma_mummy.so";
/// The folder that has the static library only.
const STATIC_ALONE: &str = "static";
/// The libraries that programs link besides the static one.
const LIBRARIES: &[&str] = &["-lpthread", "-ldl", "-lm"];

/// Build libibverbs and librdmacm as one library for C and C++ programs into target/capi, with examples
///
/// Programs that link it run with or without rdma-core. lib has the static and the shared library, and files for
/// pkg-config; include has the header of the additional functions; examples has programs linked to the static library.
#[derive(Args, Debug)]
pub(crate) struct Capi {
    /// Leave out softrnic, the NIC in software that a program can request
    #[arg(long)]
    without_softrnic: bool,
}

/// The built files.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// The folder with all files.
    pub(crate) folder: PathBuf,
}

impl Built {
    /// The static library.
    pub(crate) fn archive(&self) -> PathBuf {
        self.folder.join("lib").join(STATIC)
    }

    /// The shared library.
    pub(crate) fn shared(&self) -> PathBuf {
        self.folder.join("lib").join(SHARED)
    }

    /// The folder of the examples.
    pub(crate) fn examples(&self) -> PathBuf {
        self.folder.join("examples")
    }

    /// Compiles a C or C++ program against the distribution's headers, with the static library; the program exports
    /// none of its symbols.
    pub(crate) fn compile(&self, source: &Path, program: &Path) -> Result<()> {
        self.link(source, program, |command| {
            command.arg(format!("-Wl,--exclude-libs,{STATIC}")).arg(self.archive()).args(LIBRARIES);
        })
    }

    /// Compiles such a program with the shared library, and records the library's current path.
    pub(crate) fn compile_shared(&self, source: &Path, program: &Path) -> Result<()> {
        self.link(source, program, |command| {
            let folder = self.folder.join("lib");
            command.arg("-L").arg(&folder).args(["-lrdma_mummy", "-Wl,-rpath"]).arg(folder);
        })
    }

    fn link(&self, source: &Path, program: &Path, libraries: impl FnOnce(&mut Command)) -> Result<()> {
        let mut command = if source.extension() == Some(OsStr::new("cpp")) {
            let mut compiler = Command::new("c++");
            compiler.arg("-std=c++17");
            compiler
        } else {
            Command::new("cc")
        };
        let fresh = program.with_extension("new");
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(self.folder.join("include"));
        command.arg(source).arg("-o").arg(&fresh);
        libraries(&mut command);
        run(command)?;
        rename(&fresh, program)
    }
}

/// Runs the task.
pub(crate) fn main(task: &Capi) -> Result<ExitCode> {
    packages::require("the library for C programs", &[packages::LINKING])?;
    let root = repo::root()?;
    let built = build(&root, !task.without_softrnic, PROFILE, &[])?;
    println!("built {}", built.folder.display());
    match packages::require("building its examples", &[packages::C_EXAMPLES]) {
        Ok(()) => {
            examples(&root, &built)?;
            println!(
                "  {} --soft\n  {}",
                built.examples().join("devices").display(),
                built.examples().join("loopback").display()
            );
        }
        // The libraries need no headers.
        Err(error) => println!("without examples: {error}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the libraries and their files, with a profile of cargo's. The packages in `beside` are built as well, and
/// share the choice of features.
pub(crate) fn build(root: &Path, softrnic: bool, profile: &str, beside: &[&str]) -> Result<Built> {
    let target = repo::target_folder(root)?;
    let folder = target.join("capi");
    let library = folder.join("lib");
    for part in ["lib/pkgconfig", "lib/static", "include"] {
        make(&folder.join(part))?;
    }
    let mut cargo = repo::cargo(root);
    cargo.args(["build", "--profile", profile, "--lib", "--package", PACKAGE]).args(beside);
    if !beside.is_empty() {
        // The dependencies of examples take part in the choice of features.
        cargo.args(["--bins", "--examples"]);
    }
    if !softrnic {
        cargo.arg("--no-default-features");
    }
    repo::build(cargo)?;
    place(&target.join(profile).join(STATIC), &library.join(STATIC))?;
    point(&library.join(STATIC_ALONE).join(STATIC), &Path::new("..").join(STATIC))?;
    link(root, &library)?;
    place(&root.join(SOURCES).join("include/rdma_mummy.h"), &folder.join("include/rdma_mummy.h"))?;
    let version = repo::version(root, PACKAGE)?;
    for name in ["rdma_mummy.pc", "rdma_mummy-static.pc"] {
        let template = root.join(SOURCES).join(format!("{name}.in"));
        let text = fs::read_to_string(&template).with_context(|| format!("cannot read {}", template.display()))?;
        let file = library.join("pkgconfig").join(name);
        let text = text.replace("@VERSION@", &version);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(Built { folder })
}

/// Builds the examples, linked to the static library.
pub(crate) fn examples(root: &Path, built: &Built) -> Result<()> {
    make(&built.examples())?;
    let sources = root.join(SOURCES).join("examples");
    for name in ["devices.c", "loopback.cpp", "stream.c"] {
        let source = sources.join(name);
        built.compile(&source, &built.examples().join(name).with_extension(""))?;
    }
    Ok(())
}

/// Links the shared library from the static one. The library is linked such that `dlclose` does not unload it, because
/// its threads and fork handlers stay.
fn link(root: &Path, library: &Path) -> Result<()> {
    let fresh = library.join(SHARED).with_extension("new");
    let script = root.join(SOURCES).join("librdma_mummy.map");
    let mut command = Command::new("cc");
    command
        .arg("-shared")
        .arg(format!("-Wl,-soname,{SHARED}"))
        .arg(format!("-Wl,--version-script={}", script.display()));
    command.args(["-Wl,-z,defs", "-Wl,-z,nodelete", "-Wl,--gc-sections", "-Wl,--strip-all", "-Wl,--whole-archive"]);
    command.arg(library.join(STATIC)).arg("-Wl,--no-whole-archive").args(LIBRARIES).arg("-o").arg(&fresh);
    run(command)?;
    rename(&fresh, &library.join(SHARED))?;
    point(&library.join(LINK), Path::new(SHARED))
}

/// Creates a link, and replaces an old one.
pub(crate) fn point(link: &Path, to: &Path) -> Result<()> {
    let fresh = link.with_extension("new");
    // A link from an earlier call.
    fs::remove_file(&fresh).ok();
    symlink(to, &fresh).with_context(|| format!("cannot make the link {}", fresh.display()))?;
    rename(&fresh, link)
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
