//! The cost ring: instructions of posting and polling, compared with the same loops in C.

use std::process::Command;

use anyhow::Result;

use super::table::Finished;
use super::{Context, Extent, Results, build, running};
use crate::{packages, repo};

/// The package of the measurement and of its test.
const PACKAGE: &str = "sideway-zero-cost";

/// Measures the ratios, which must be within their limits; a full run also runs the package's tests optimised, and
/// times each loop once.
pub(crate) fn run(context: &Context<'_>) -> Result<Finished> {
    if let Err(error) = packages::require("counting instructions", &[packages::C_TESTS, packages::COST]) {
        return Ok(Finished::did_not_run(format!("{error:#}")));
    }
    let is_full = context.extent == Extent::Full;
    build::release(context.root)?;
    let mut finished = Finished::default();
    for name in ["zero_cost", "xsk_cost", "trespass_cost", "canter_cost", "lens_cost"] {
        let program = repo::target_folder(context.root)?.join("release").join(name);
        let mut text = Vec::new();
        let (end, _) = running::copy(Command::new(&program), &mut text)?;
        let text = String::from_utf8_lossy(&text);
        print!("{text}");
        let passed = u64::from(end.is_success());
        let failures = (!end.is_success()).then(|| format!("{name}\n{text}")).into_iter().collect();
        finished.add(name, (end, Results { passed, failed: 1 - passed, failures, ..Results::default() }));
    }
    if is_full {
        let mut cargo = repo::cargo(context.root);
        cargo.args(["test", "--release", "--package", PACKAGE, "--no-fail-fast", "--lib", "--bins", "--benches"]);
        finished.add("cargo test --release", running::stream(cargo)?);
    }
    Ok(finished.or_nothing_ran())
}
