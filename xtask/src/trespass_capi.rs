//! `cargo xtask trespass-capi`: trespass as a library for C and C++ programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::capi::point;
use crate::packages;
use crate::preload::{place, rename, run};
use crate::repo;

const PACKAGE: &str = "trespass-capi";
const SOURCES: &str = "trespass/capi";
const PROFILE: &str = "for-c";
const SHARED: &str = "libtrespass.so.0";
/// The libraries that programs link besides the static one.
const LIBRARIES: &[&str] = &["-lpthread", "-ldl", "-lm"];
const EXAMPLES: &[(&str, &str)] = &[("cc", "echo.c"), ("c++", "fan.cpp")];

/// Build libtrespass, messages over RDMA for C and C++ programs, into target/trespass-capi, with examples
///
/// lib has the static and the shared library, and files for pkg-config; include has the header.
#[derive(Args, Debug)]
pub(crate) struct TrespassCapi;

/// Runs the task.
pub(crate) fn main(_: &TrespassCapi) -> Result<ExitCode> {
    packages::require("the library for C programs", &[packages::LINKING])?;
    let root = repo::root()?;
    let folder = build(&root)?;
    println!("built {}", folder.display());
    for (compiler, name) in EXAMPLES {
        let program = folder.join("examples").join(name).with_extension("");
        let mut command = Command::new(compiler);
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder.join("include"));
        command.arg(root.join(SOURCES).join("examples").join(name)).arg(folder.join("lib/libtrespass.a"));
        command.args(LIBRARIES).arg("-o").arg(&program);
        run(command)?;
        println!("  {}", program.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the libraries and their files. Returns their folder.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let mut cargo = repo::cargo(root);
    // Without the other forms of the library, which its manifest has for tests, its code is optimized in one piece.
    cargo.args(["rustc", "--profile", PROFILE, "--lib", "--crate-type", "staticlib", "--package", PACKAGE]);
    repo::build(cargo)?;
    lay_out(root, &repo::target_folder(root)?.join(PROFILE))
}

/// Makes the files from the static library that cargo has built in a folder. Returns their folder.
pub(crate) fn lay_out(root: &Path, built: &Path) -> Result<PathBuf> {
    let (folder, sources) = (repo::target_folder(root)?.join("trespass-capi"), root.join(SOURCES));
    for part in ["lib/pkgconfig", "lib/static", "include", "examples"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).with_context(|| format!("cannot create {}", part.display()))?;
    }
    let library = folder.join("lib");
    place(&built.join("libtrespass_c.a"), &library.join("libtrespass.a"))?;
    place(&sources.join("include/trespass.h"), &folder.join("include/trespass.h"))?;
    shared(&library, &sources)?;
    point(&library.join("static/libtrespass.a"), Path::new("../libtrespass.a"))?;
    let version = repo::version(root, PACKAGE)?;
    for name in ["trespass.pc", "trespass-static.pc"] {
        let template = sources.join(format!("{name}.in"));
        let text = fs::read_to_string(&template).with_context(|| format!("cannot read {}", template.display()))?;
        let file = library.join("pkgconfig").join(name);
        fs::write(&file, text.replace("@VERSION@", &version))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(folder)
}

/// Links the shared library from the static one. The library is linked such that `dlclose` does not unload it, because
/// its threads stay.
fn shared(library: &Path, sources: &Path) -> Result<()> {
    let fresh = library.join("libtrespass.new");
    let mut command = Command::new("cc");
    command.args(["-shared", "-Wl,-soname"]).arg(format!("-Wl,{SHARED}"));
    command.arg(format!("-Wl,--version-script={}", sources.join("libtrespass.map").display()));
    command.args(["-Wl,-z,defs", "-Wl,-z,nodelete", "-Wl,--gc-sections", "-Wl,--strip-all", "-Wl,--whole-archive"]);
    command.arg(library.join("libtrespass.a")).arg("-Wl,--no-whole-archive").args(LIBRARIES).arg("-o").arg(&fresh);
    run(command)?;
    rename(&fresh, &library.join(SHARED))?;
    point(&library.join("libtrespass.so"), Path::new(SHARED))
}
