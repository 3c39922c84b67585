//! Paths: the repository, its build folder, the folder of the guest's prepared files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The root of the checkout: the parent of this package.
///
/// `cargo run` names the package in the environment; the compile-time path serves a copied binary.
pub(crate) fn root() -> Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .filter(|path| path.ends_with("xtask"))
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let root = package.parent().context("the xtask package has no parent folder")?;
    ensure!(root.join("Cargo.toml").is_file(), "{} is not the repository: run `cargo xtask` inside it", root.display());
    Ok(root.to_path_buf())
}

/// The files of the checkout, sorted, without build output and hidden folders.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !path.is_dir() {
                files.push(path);
            } else if name != "target" && !name.starts_with('.') {
                open.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// `target/softroce` of the checkout, created if missing: kernels, initial RAM disks, logs.
///
/// The folder is in the checkout even if `CARGO_TARGET_DIR` is elsewhere, so that all builds share one kernel.
pub(crate) fn softroce_folder() -> Result<PathBuf> {
    let folder = root()?.join("target/softroce");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// A `cargo` command that runs in the root of the checkout, with the cargo that runs this program.
///
/// The variables that `cargo run` set for xtask are removed, or each package's build would see them.
pub(crate) fn cargo(root: &Path) -> Command {
    cleaned(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())), root)
}

/// A `cargo` command of the toolchain of this name, through rustup.
pub(crate) fn toolchain_cargo(root: &Path, toolchain: &str) -> Command {
    // Not `$CARGO`, which belongs to one toolchain, nor the tools that it sets.
    let mut command = cleaned(Command::new("cargo"), root);
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command.arg(format!("+{toolchain}"));
    command
}

fn cleaned(mut command: Command, root: &Path) -> Command {
    command.current_dir(root);
    for (name, _) in std::env::vars_os().filter(|(name, _)| set_by_cargo_run(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Whether `cargo run` sets this variable to describe the package that it runs.
pub(crate) fn set_by_cargo_run(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|prefix| name.starts_with(prefix))
        || name == "CARGO_PRIMARY_PACKAGE"
}

/// The output of `cargo metadata` for the workspace; with `dependencies`, also the whole resolved graph.
pub(crate) fn metadata(root: &Path, dependencies: bool) -> Result<Value> {
    let mut command = cargo(root);
    command.args(["metadata", "--format-version=1"]);
    // Resolves one platform, because the graph of all platforms would download dependencies of other systems.
    command.args(if dependencies {
        ["--filter-platform", "x86_64-unknown-linux-gnu"].as_slice()
    } else {
        &["--no-deps"]
    });
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed invalid JSON")
}

/// The folder that cargo builds into.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    let metadata = metadata(root, false)?;
    let folder = metadata["target_directory"].as_str().context("cargo metadata names no target_directory")?;
    Ok(PathBuf::from(folder))
}

/// The version of a package of the workspace.
pub(crate) fn version(root: &Path, name: &str) -> Result<String> {
    let metadata = metadata(root, false)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let package = packages.iter().find(|package| package["name"] == name);
    let version = package.and_then(|package| package["version"].as_str());
    version.map(str::to_owned).with_context(|| format!("the workspace has no package {name}"))
}

/// A package of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// Whether the manifest allows publishing.
    pub(crate) is_published: bool,
    /// Whether `cargo test` at the root includes the package.
    pub(crate) is_default: bool,
    /// The `rust-version` of the package.
    pub(crate) rust_version: Option<String>,
    /// The features of the package, without `default`.
    pub(crate) features: Vec<String>,
    /// The targets that `cargo test` builds as programs, by kind and name.
    pub(crate) tests: Vec<(String, String)>,
}

/// The packages of the workspace.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let metadata = metadata(root, false)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_true = |value: &Value| value.as_bool() == Some(true);
    let default = list(&metadata["workspace_default_members"]);
    let package = |package: &Value| {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let targets = list(&package["targets"]);
        let tests = targets.iter().filter(|target| is_true(&target["test"]));
        let features = package["features"].as_object().into_iter().flat_map(|features| features.keys());
        Ok(Package {
            name: text(&package["name"]),
            folder: manifest.parent().context("a manifest has no parent folder")?.to_path_buf(),
            // The value is null without a restriction, and an empty list for `false`.
            is_published: package["publish"].is_null(),
            is_default: default.contains(&package["id"]),
            rust_version: package["rust_version"].as_str().map(str::to_owned),
            features: features.filter(|name| *name != "default").cloned().collect(),
            tests: tests.map(|target| (target_kind(target).to_owned(), text(&target["name"]))).collect(),
        })
    };
    list(&metadata["packages"]).iter().map(package).collect()
}

/// The kind of a target as cargo's options name it: a library of any form is `lib`.
pub(crate) fn target_kind(target: &Value) -> &str {
    match target["kind"][0].as_str().unwrap_or_default() {
        "rlib" | "dylib" | "cdylib" | "staticlib" | "proc-macro" => "lib",
        kind => kind,
    }
}

/// `--package NAME` for each.
pub(crate) fn selected(packages: &[String]) -> Vec<&str> {
    packages.iter().flat_map(|name| ["--package", name.as_str()]).collect()
}

/// Runs a build, which [yields](yielding) to programs that run meanwhile.
pub(crate) fn build(command: Command) -> Result<()> {
    run(yielding(&command))
}

/// Lowers the priority of a command. The programs in the guest poll: while one of them has no processor, the others
/// waste theirs. Beside a build of the same priority, the guest takes twice as long.
pub(crate) fn yielding(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "10"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// Runs a command, and adds its duration to the build time. See [`built_for`].
pub(crate) fn run(mut command: Command) -> Result<()> {
    let started = Instant::now();
    let name = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    count_build(started);
    let words = command.get_args().map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    ensure!(status.success(), "`{name} {words}` ended with {status}");
    Ok(())
}

static BUILT: AtomicU64 = AtomicU64::new(0);

/// Adds the time since `started` to the build time.
pub(crate) fn count_build(started: Instant) {
    let time = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    BUILT.fetch_add(time, Ordering::Relaxed);
}

/// The build time of this program so far.
pub(crate) fn built_for() -> Duration {
    Duration::from_millis(BUILT.load(Ordering::Relaxed))
}

/// The processor time, in user and kernel mode, of all programs that this one has started and that have ended.
pub(crate) fn processor_time() -> Duration {
    // SAFETY: a zeroed `rusage` is valid, because it consists of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable for the duration of the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let time = |time: libc::timeval| {
        let micros = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
