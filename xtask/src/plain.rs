//! Checks in cargo's dependency graph that the libraries build with rustc alone.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::repo;

/// The packages that must build with rustc alone.
const PROMISED: [&str; 2] = ["rdma-mummy-sys", "sideway"];
/// Build dependencies that call a C compiler, another build system, libclang or pkg-config.
const TOOLS: [&str; 7] = ["cc", "cmake", "bindgen", "pkg-config", "clang-sys", "autotools", "vcpkg"];

/// Checks every package that the libraries need on Linux.
///
/// # Errors
///
/// One of them links a native library (`links` in its manifest) or builds with one of [`TOOLS`].
pub(crate) fn check() -> Result<()> {
    let metadata = repo::metadata(&repo::root()?, true)?;
    let faults = faults(&metadata).context("unexpected form of cargo metadata")?;
    ensure!(faults.is_empty(), "the libraries no longer build with rustc alone:\n  {}", faults.join("\n  "));
    Ok(())
}

fn faults(metadata: &Value) -> Option<Vec<String>> {
    let packages: HashMap<&str, &Value> = metadata["packages"]
        .as_array()?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes: HashMap<&str, &Value> =
        metadata["resolve"]["nodes"].as_array()?.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();

    let mut open: Vec<&str> = packages
        .iter()
        .filter(|(_, package)| PROMISED.iter().any(|name| package["name"] == *name))
        .map(|(&id, _)| id)
        .collect();
    let mut faults = Vec::new();
    if open.len() != PROMISED.len() {
        faults.push(format!("the workspace lacks one of {PROMISED:?}"));
    }
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let package = packages.get(id)?;
        let name = package["name"].as_str()?;
        if let Some(library) = package["links"].as_str() {
            faults.push(format!("{name} links {library}"));
        }
        for dependency in nodes.get(id)?["deps"].as_array()? {
            let kinds = dependency["dep_kinds"].as_array()?;
            let needed_as = |wanted: Option<&str>| kinds.iter().any(|kind| kind["kind"].as_str() == wanted);
            let target = dependency["pkg"].as_str()?;
            let target_name = packages.get(target)?["name"].as_str()?;
            if needed_as(Some("build")) && TOOLS.contains(&target_name) {
                faults.push(format!("{name} builds with {target_name}"));
            }
            // Dependencies of a build script count; development dependencies are only for tests.
            if needed_as(None) || needed_as(Some("build")) {
                open.push(target);
            }
        }
    }
    Some(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(links: Value, kind: Value) -> Value {
        serde_json::json!({
            "packages": [
                { "id": "1", "name": "rdma-mummy-sys", "links": links },
                { "id": "2", "name": "sideway", "links": null },
                { "id": "3", "name": "cc", "links": null },
            ],
            "resolve": { "nodes": [
                { "id": "1", "deps": [{ "pkg": "3", "dep_kinds": [{ "kind": kind }] }] },
                { "id": "2", "deps": [{ "pkg": "1", "dep_kinds": [{ "kind": null }] }] },
                { "id": "3", "deps": [] },
            ] },
        })
    }

    #[test]
    fn native_libraries_and_c_compilers_are_found() {
        assert_eq!(faults(&metadata(Value::Null, "dev".into())).unwrap(), Vec::<String>::new());
        assert_eq!(faults(&metadata("ibverbs".into(), "dev".into())).unwrap(), ["rdma-mummy-sys links ibverbs"]);
        assert_eq!(faults(&metadata(Value::Null, "build".into())).unwrap(), ["rdma-mummy-sys builds with cc"]);
    }

    #[test]
    fn missing_library_is_a_fault() {
        let mut metadata = metadata(Value::Null, "dev".into());
        metadata["packages"][1]["name"] = "renamed".into();
        assert_eq!(faults(&metadata).unwrap().len(), 1);
    }
}
