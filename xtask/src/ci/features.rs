//! The step `features`: each public crate, and the libraries for C programs, with every set of its features, clippy looking on.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::cargo;
use super::public::{self, Crate};

/// What C programs link is not published as a crate.
const FOR_C: &str = "rdma-mummy-capi";

/// Checks every set, from none to all.
pub(super) fn check(root: &Path) -> Result<()> {
    for Crate { name, features, .. } in public::crates(root, &[FOR_C])? {
        for set in subsets(&features) {
            println!("{name} [{set}]");
            let words =
                ["clippy", "--package", &name, "--no-default-features", "--features", &set, "--", "-D", "warnings"];
            cargo(&words, &[])?;
        }
    }
    Ok(())
}

/// The features of a package, but for the one that is a set of the others.
pub(super) fn of(package: &Value) -> Result<Vec<String>> {
    let features = package["features"].as_object().context("cargo metadata names no features")?;
    Ok(features.keys().filter(|name| *name != "default").cloned().collect())
}

/// Every set of the names, as `--features` takes it.
fn subsets(names: &[String]) -> Vec<String> {
    let mut sets = vec![String::new()];
    for name in names {
        let with: Vec<String> =
            sets.iter().map(|set| if set.is_empty() { name.clone() } else { format!("{set},{name}") }).collect();
        sets.extend(with);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::subsets;

    #[test]
    fn every_set_is_there_once() {
        assert_eq!(subsets(&[]), [""]);
        let names = ["a", "b", "c"].map(String::from);
        assert_eq!(subsets(&names), ["", "a", "b", "a,b", "c", "a,c", "b,c", "a,b,c"]);
    }
}
