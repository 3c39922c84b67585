//! The step `features`: clippy on each public crate, and on the libraries for C programs, with every set of its
//! features.

use anyhow::Result;

use super::{cargo, published};
use crate::repo::Package;

/// The package of the libraries for C programs, which is not published as a crate.
const FOR_C: &str = "rdma-mummy-capi";

/// Checks every set, from none to all.
pub(super) fn check(packages: &[Package]) -> Result<()> {
    let for_c = packages.iter().filter(|package| package.name == FOR_C);
    for Package { name, features, .. } in published(packages).into_iter().chain(for_c) {
        for set in subsets(features) {
            println!("{name} [{set}]");
            let words =
                ["clippy", "--package", name, "--no-default-features", "--features", &set, "--", "-D", "warnings"];
            cargo(&words, &[])?;
        }
    }
    Ok(())
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
    fn every_set_appears_once() {
        assert_eq!(subsets(&[]), [""]);
        let names = ["a", "b", "c"].map(String::from);
        assert_eq!(subsets(&names), ["", "a", "b", "a,b", "c", "a,c", "b,c", "a,b,c"]);
    }
}
