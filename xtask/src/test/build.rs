//! Builds all test programs at once; cargo's messages name them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::repo::{self, Package};

/// A test program that cargo can build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The target's package, and the folder of the package.
    pub(crate) package: String,
    pub(crate) folder: PathBuf,
    /// `lib`, `bin`, `test`, …
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// A built test program.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    pub(crate) target: Target,
    pub(crate) file: PathBuf,
}

impl Target {
    /// All test programs of a package.
    pub(crate) fn all(package: &Package) -> Vec<Self> {
        let target = |(kind, name): &(String, String)| Self {
            package: package.name.clone(),
            folder: package.folder.clone(),
            kind: kind.clone(),
            name: name.clone(),
        };
        package.tests.iter().map(target).collect()
    }

    /// A readable name.
    pub(crate) fn title(&self) -> String {
        let Self { package, kind, name, .. } = self;
        if kind == "lib" { package.clone() } else { format!("{package}, {kind} {name}") }
    }
}

impl Executable {
    /// The command that runs the program as `cargo test` does.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.target.folder);
        command.envs([
            ("CARGO_MANIFEST_DIR", self.target.folder.as_os_str()),
            ("CARGO_PKG_NAME", self.target.package.as_ref()),
        ]);
        command
    }

    /// The names of its tests.
    pub(crate) fn tests(&self, more: &[&str]) -> Result<Vec<String>> {
        let list = self.command().args(["--list", "--format=terse"]).args(more).output();
        let list = list.with_context(|| format!("cannot run {}", self.file.display()))?;
        ensure!(list.status.success(), "{} --list: {}", self.file.display(), list.status);
        let list = String::from_utf8_lossy(&list.stdout);
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }
}

/// Builds these targets with `cargo test --no-run` and these additional arguments. All packages of `selection` take
/// part in feature resolution, so that each is built once.
pub(crate) fn build(mut cargo: Command, selection: &[&str], wanted: &[Target]) -> Result<Vec<Executable>> {
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(selection).args(filters(wanted));
    let started = Instant::now();
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    repo::count_build(started);
    ensure!(output.status.success(), "building the tests: {}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    let built: Vec<_> = messages.lines().filter_map(executable).collect();
    let find = |target: &Target| {
        let is_it = |(folder, kind, name, _): &&(PathBuf, String, String, PathBuf)| {
            *folder == target.folder && *kind == target.kind && *name == target.name
        };
        let (_, _, _, file) = built.iter().find(is_it).with_context(|| format!("cargo built no {}", target.title()))?;
        Ok(Executable { target: target.clone(), file: file.clone() })
    };
    wanted.iter().map(find).collect()
}

/// The arguments with which cargo builds only these targets. Each target is named, because `--examples` would build all
/// examples as test programs, even those without tests.
fn filters(wanted: &[Target]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    if wanted.iter().any(|target| target.kind == "lib") {
        words.push("--lib".to_owned());
    }
    for Target { kind, name, .. } in wanted.iter().filter(|target| target.kind != "lib") {
        words.extend([format!("--{kind}"), name.clone()]);
    }
    words
}

/// The folder, kind, name and file of the test program in a line of cargo's messages.
fn executable(line: &str) -> Option<(PathBuf, String, String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let file = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let target = &message["target"];
    let (kind, name) = (repo::target_kind(target), target["name"].as_str()?);
    Some((folder.into(), kind.into(), name.into(), file.into()))
}

/// The arguments that select these packages: the whole workspace, its default members, or each by name.
pub(crate) fn selection<'a>(all: &[Package], packages: &'a [String]) -> Vec<&'a str> {
    // Packages without tests make no difference.
    let is_all = |of: &dyn Fn(&Package) -> bool| {
        all.iter().all(|one| one.tests.is_empty() || of(one) == packages.contains(&one.name))
    };
    if is_all(&|_| true) {
        return vec!["--workspace"];
    }
    if is_all(&|one| one.is_default) {
        return Vec::new();
    }
    repo::selected(packages)
}

/// The programs that device tests start, built optimised.
pub(crate) fn programs(root: &Path) -> Result<Vec<(OsString, OsString)>> {
    release(root)?;
    let library = crate::capi::build(root, true, "release", BESIDE)?;
    crate::capi::examples(root, &library)?;
    let target = repo::target_folder(root)?;
    let folder = target.join("release");
    // Uses the options of the device tests, so that cargo builds nothing twice.
    let mut cargo = repo::cargo(root);
    cargo.args(["build", "--workspace", "--bin", "rdcp", "--bin", "rdsend", "--bin", "rdrecv", "--example", "kv"]);
    repo::build(cargo)?;
    let calls = Target {
        package: "trespass-rpc-ecosystem".to_owned(),
        folder: root.join("trespass-rpc/ecosystem"),
        kind: "test".to_owned(),
        name: "libraries".to_owned(),
    };
    let calls = build(repo::cargo(root), &["--workspace"], &[calls])?.into_iter().map(|built| built.file);
    let backend = Target {
        package: "trespass".to_owned(),
        folder: root.join("trespass"),
        kind: "lib".to_owned(),
        name: "trespass".to_owned(),
    };
    let backend = build(repo::cargo(root), &["--package", "trespass"], &[backend])?.into_iter().map(|built| built.file);
    let packets = Target {
        package: "softrnic".to_owned(),
        folder: root.join("softrnic"),
        kind: "test".to_owned(),
        name: "roce".to_owned(),
    };
    let packets = build(repo::cargo(root), &["--package", "softrnic"], &[packets])?.into_iter().map(|built| built.file);
    let mut variables = vec![
        ("SIDEWAY_TRESPASS_PROGRAMS".into(), target.join("debug").into()),
        ("SIDEWAY_EXAMPLES_DIR".into(), folder.join("examples").into()),
        ("SIDEWAY_STRIDE_PERF".into(), folder.join("stride-perf").into()),
        ("SIDEWAY_CAPI_EXAMPLES".into(), library.examples().into()),
    ];
    variables.extend(calls.map(|calls| ("SIDEWAY_RPC_TESTS".into(), calls.into())));
    variables.extend(backend.map(|backend| ("SIDEWAY_TRESPASS_TESTS".into(), backend.into())));
    variables.extend(packets.map(|packets| ("SIDEWAY_ROCE_TESTS".into(), packets.into())));
    Ok(variables)
}

/// Arguments of every optimised build, so that all share the libraries.
pub(crate) const BESIDE: &[&str] =
    &["--package", "sideway-examples", "--package", "sideway-zero-cost", "--package", "stride-perf"];

/// Builds stride-perf, the examples and the measurement of costs.
pub(crate) fn release(root: &Path) -> Result<()> {
    let mut cargo = repo::cargo(root);
    cargo.args(["build", "--release", "--bins", "--examples"]).args(BESIDE);
    repo::build(cargo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_taken_from_cargos_messages() {
        let line = |reason: &str, is_test: bool| {
            format!(
                r#"{{"reason":"{reason}","manifest_path":"/w/nic/Cargo.toml","profile":{{"test":{is_test}}},"target":{{"kind":["test"],"name":"many"}},"executable":"/t/many-1"}}"#
            )
        };
        let expected = ("/w/nic".into(), "test".into(), "many".into(), "/t/many-1".into());
        assert_eq!(executable(&line("compiler-artifact", true)), Some(expected));
        for other in [line("compiler-artifact", false), line("build-finished", true), "not json".into()] {
            assert_eq!(executable(&other), None);
        }
    }

    #[test]
    fn only_wanted_programs_are_built() {
        let target = |kind: &str, name: &str| Target {
            package: "p".into(),
            folder: "/p".into(),
            kind: kind.into(),
            name: name.into(),
        };
        assert_eq!(filters(&[target("lib", "p")]), ["--lib"]);
        let (bin, test, example) = (target("bin", "b"), target("test", "t"), target("example", "e"));
        assert_eq!(filters(&[bin, test, example]), ["--bin", "b", "--test", "t", "--example", "e"]);
    }
}
