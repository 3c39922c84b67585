//! The step `layers`: a folder of a crate imports only from the folders below it, and modules of one folder import each
//! other without a circle.
//!
//! `layers.txt` lists the modules of each crate, or of a folder of it, from the bottom up. The step reads all paths from
//! this root to another module, by `crate::` or `super::`. Tests and fuzz entry points are exempt: `mod tests { … }`, files and
//! folders named `tests` or `fuzz`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Files and folders that may import from anywhere.
const EXEMPT: [&str; 2] = ["tests", "fuzz"];
/// The table, in the root of the repository.
const TABLE: &str = "layers.txt";

/// Files that connect the modules of a folder, and are not modules of it.
const CONNECT: [&str; 3] = ["lib", "main", "mod"];

/// Compares the sources of every crate of the table with it.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut faults = Vec::new();
    let table = fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    let (layers, circles) = parse(&table)?;
    for (sources, _) in &layers {
        check_below(root, sources, &layers, &circles, &mut faults)?;
    }
    for (sources, layers) in layers {
        let folder = root.join(&sources);
        let within = within(&sources);
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            // A module is a folder, a file, or both.
            if CONNECT.contains(&name.as_str()) || EXEMPT.contains(&name.as_str()) {
                continue;
            }
            if !layers.contains_key(&name) {
                faults.push(format!("{sources}/{name} has no line in layers.txt"));
            }
            seen.insert(name.clone());
            let allowed = layers.get(&name).cloned().unwrap_or_default();
            for (file, imported) in imports(&path, &within, 1)? {
                if imported != name && layers.contains_key(&imported) && !allowed.contains(&imported) {
                    let file = file.strip_prefix(root.to_string_lossy().as_ref()).unwrap_or(&file).to_owned();
                    faults.push(format!("{} uses {imported}, which is not below {name}", file.trim_start_matches('/')));
                }
            }
        }
        faults
            .extend(layers.keys().filter(|name| !seen.contains(*name)).map(|name| format!("{sources} has no {name}")));
    }
    ensure!(faults.is_empty(), "imports against layers.txt:\n{}", faults.join("\n"));
    Ok(())
}

/// The path in its crate of a folder: `ibverbs` of `sideway/src/ibverbs`.
fn within(sources: &str) -> Vec<&str> {
    sources.split('/').skip_while(|part| *part != "src").skip(1).collect()
}

/// Adds the circles in the folders below `sources` that are no root of the table. A binary is a crate of its own.
fn check_below(root: &Path, sources: &str, layers: &Layers, circles: &Circles, faults: &mut Vec<String>) -> Result<()> {
    let folder = root.join(sources);
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let inner = format!("{sources}/{name}");
        if path.is_dir() && !EXEMPT.contains(&&*name) && name != "bin" && layers.iter().all(|(root, _)| *root != inner)
        {
            let modules = siblings(&path, &within(&inner))?;
            let joined: Vec<_> =
                circles.iter().filter(|(folder, _)| *folder == inner).map(|(_, joined)| joined).collect();
            faults.extend(faults_of(&modules, &joined).into_iter().map(|fault| format!("{inner}: {fault}")));
            check_below(root, &inner, layers, circles, faults)?;
        }
    }
    Ok(())
}

/// The modules of a folder, each with those that it imports.
fn siblings(folder: &Path, within: &[&str]) -> Result<Modules> {
    let mut modules = Modules::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !CONNECT.contains(&&*name) && !EXEMPT.contains(&&*name) {
            let imported = imports(&path, within, 1)?.into_iter().map(|(_, imported)| imported);
            modules.entry(name).or_default().extend(imported);
        }
    }
    Ok(modules)
}

/// The circles of modules, except in the groups that may have one. A group without a circle is a fault, too.
fn faults_of(modules: &Modules, joined: &[&BTreeSet<String>]) -> Vec<String> {
    let kept = |keep: &dyn Fn(&String, &String) -> bool| -> Modules {
        let imported = |(name, all): (&String, &BTreeSet<String>)| {
            (name.clone(), all.iter().filter(|other| *other != name && keep(name, other)).cloned().collect())
        };
        modules.iter().map(imported).collect()
    };
    let are_in = |group: &BTreeSet<String>, one: &String, other: &String| group.contains(one) && group.contains(other);
    let rest = kept(&|one, other| joined.iter().all(|group| !are_in(group, one, other)));
    let stale = joined.iter().filter(|group| circle(&kept(&|one, other| are_in(group, one, other))).is_none());
    let stale = stale.map(|group| format!("{group:?} has no circle; remove its line"));
    circle(&rest).map(|path| format!("circle {}", path.join(" -> "))).into_iter().chain(stale).collect()
}

/// A circle, from a module back to it.
fn circle(modules: &Modules) -> Option<Vec<String>> {
    fn visit<'m>(
        modules: &'m Modules,
        name: &'m String,
        path: &mut Vec<&'m String>,
        done: &mut BTreeSet<&'m String>,
    ) -> Option<Vec<String>> {
        if let Some(at) = path.iter().position(|above| *above == name) {
            return Some(path[at..].iter().copied().chain([name]).cloned().collect());
        }
        if done.contains(name) {
            return None;
        }
        path.push(name);
        let found = modules.get(name).into_iter().flatten().find_map(|next| visit(modules, next, path, done));
        path.pop();
        done.insert(name);
        found
    }
    let mut done = BTreeSet::new();
    modules.keys().find_map(|name| visit(modules, name, &mut Vec::new(), &mut done))
}

/// Modules, each with others.
type Modules = BTreeMap<String, BTreeSet<String>>;
/// The modules of each source folder, each with all modules below it.
type Layers = Vec<(String, Modules)>;
/// The modules of a folder that may import each other in a circle.
type Circles = Vec<(String, BTreeSet<String>)>;

/// Parses the table. A line names only modules of the lines above, so there are no cycles.
fn parse(table: &str) -> Result<(Layers, Circles)> {
    let (mut layers, mut circles) = (Layers::new(), Circles::new());
    for line in
        table.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty())
    {
        if let Some(sources) = line.strip_suffix(':') {
            layers.push((sources.to_owned(), BTreeMap::new()));
            continue;
        }
        if let Some((folder, joined)) = line.split_once(':') {
            circles.push((folder.to_owned(), joined.trim().split('+').map(str::to_owned).collect()));
            continue;
        }
        let (_, modules) = layers.last_mut().context("layers.txt begins without a folder")?;
        let (names, below) = line.split_once("<-").map_or((line, ""), |(names, below)| (names, below));
        let below: BTreeSet<String> = match below.trim() {
            "all" => modules.keys().cloned().collect(),
            below => below.split_whitespace().map(str::to_owned).collect(),
        };
        for name in &below {
            ensure!(modules.contains_key(name), "layers.txt: {name} has no line above `{line}`");
        }
        for layer in names.split_whitespace() {
            for name in layer.split('+') {
                let below = below.iter().cloned().chain(layer.split('+').map(str::to_owned)).collect();
                ensure!(modules.insert(name.to_owned(), below).is_none(), "layers.txt has two lines for {name}");
            }
        }
    }
    Ok((layers, circles))
}

/// The modules of the root `within` that a module's files import, each with the file. `depth` is the module's depth in
/// the root.
fn imports(path: &Path, within: &[&str], depth: usize) -> Result<BTreeSet<(String, String)>> {
    let mut found = BTreeSet::new();
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !EXEMPT.contains(&name.as_str()) {
                found.extend(imports(&path, within, if name == "mod" { depth } else { depth + 1 })?);
            }
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let source = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let tokens: TokenStream =
            source.parse().map_err(|error| anyhow!("{}: cannot parse its Rust tokens: {error}", path.display()))?;
        let mut names = BTreeSet::new();
        collect(tokens, within, depth, &mut names);
        found.extend(names.into_iter().map(|name| (path.display().to_string(), name)));
    }
    Ok(found)
}

/// Adds the names after `crate::` and the path of the root, or after as many `super::` as the file is deep: one name, or
/// several in braces.
fn collect(tokens: TokenStream, within: &[&str], depth: usize, names: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let word = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => ident.to_string(),
        Some(TokenTree::Punct(punct)) => punct.as_char().to_string(),
        _ => String::new(),
    };
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            // Tests may import from anywhere.
            TokenTree::Ident(ident) if ident == "mod" && word(at + 1) == "tests" => at += 2,
            TokenTree::Ident(ident) if ident == "crate" || ident == "super" => {
                let is_super = ident == "super";
                let mut supers = 0;
                while word(at) == if is_super { "super" } else { "crate" } && word(at + 1) == ":" && word(at + 2) == ":"
                {
                    supers += 1;
                    at += 3;
                }
                if supers == 0 || is_super && (supers < depth || supers > depth && !within.is_empty()) {
                    at += usize::from(supers == 0);
                    continue;
                }
                if !is_super {
                    let named = within.iter().enumerate().all(|(index, part)| word(at + 3 * index) == *part);
                    if !named {
                        continue;
                    }
                    at += 3 * within.len();
                }
                match tokens.get(at) {
                    Some(TokenTree::Ident(name)) => drop(names.insert(name.to_string())),
                    Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                        list(group.stream(), names)
                    }
                    _ => {}
                }
            }
            TokenTree::Group(group) => collect(group.stream(), within, depth, names),
            _ => {}
        }
        at += 1;
    }
}

/// Adds the first word of each item of `{a, b::c, d::{e}}`.
fn list(items: TokenStream, names: &mut BTreeSet<String>) {
    let mut is_first = true;
    for token in items {
        match token {
            TokenTree::Ident(ident) if is_first => {
                names.insert(ident.to_string());
                is_first = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => is_first = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_with_a_cycle_is_rejected() {
        let (layers, _) =
            parse("nic/src: # the NIC\n  sys\n  wire <- sys\n  qp srq <- wire sys\n  verbs <- all\n").unwrap();
        let [(sources, modules)] = &layers[..] else { panic!("one crate") };
        assert_eq!(sources, "nic/src");
        assert!(modules["verbs"].contains("srq") && modules["qp"].contains("sys") && !modules["sys"].contains("qp"));
        assert!(parse("a:\n b <- c\n c\n").is_err() && parse("a:\n b\n b\n").is_err() && parse("b\n").is_err());
    }

    #[test]
    fn circle_is_named_unless_its_modules_are_joined() {
        let modules = |lines: &[(&str, &[&str])]| -> Modules {
            let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            lines.iter().map(|(name, imported)| (name.to_string(), owned(imported))).collect()
        };
        let round = modules(&[("a", &["b"]), ("b", &["c", "elsewhere"]), ("c", &["b"]), ("d", &["a", "d"])]);
        assert_eq!(faults_of(&round, &[]), ["circle b -> c -> b"]);
        let (_, circles) = parse("nic/src/qp: b+c # one machine\nnic/src/qp: a+d\n").unwrap();
        assert_eq!(circles[0].0, "nic/src/qp");
        assert_eq!(faults_of(&round, &[&circles[0].1]), [""; 0]);
        assert_eq!(
            faults_of(&round, &[&circles[0].1, &circles[1].1]),
            [r#"{"a", "d"} has no circle; remove its line"#]
        );
    }

    #[test]
    fn circle_between_files_of_a_folder_is_a_fault() {
        let root = sideway_test_names::Folder::new();
        let folder = root.path().join("nic/src/qp");
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in [
            ("mod.rs", "mod send; mod recv;"),
            ("send.rs", "use super::recv::Peer; use super::Pair;"),
            ("recv.rs", "#[cfg(test)] mod tests { use super::super::send::Work; }"),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
        let faults = || {
            let mut faults = Vec::new();
            let (layers, circles) = parse("nic/src:\n qp\n").unwrap();
            check_below(root.path(), "nic/src", &layers, &circles, &mut faults).unwrap();
            faults
        };
        assert_eq!(faults(), [""; 0], "a test may import from anywhere, and a parent may be imported");
        fs::write(folder.join("recv.rs"), "use crate::qp::send::Work;").unwrap();
        assert_eq!(faults(), ["nic/src/qp: circle recv -> send -> recv"]);
    }

    #[test]
    fn imports_outside_tests_are_found() {
        let source = "use crate::wire::Part; use crate::{mem::{self, Region}, cq}; fn f() { crate::sys::now() }\n\
                      #[cfg(test)] mod tests { use crate::verbs::Table; }\n pub(crate) struct S;";
        let mut names = BTreeSet::new();
        collect(source.parse().unwrap(), &[], 2, &mut names);
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["cq", "mem", "sys", "wire"]);
        names.clear();
        let source = "use super::near; use super::super::qp::Number; use super::super::{srq, cm::Id};";
        collect(source.parse().unwrap(), &[], 2, &mut names);
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["cm", "qp", "srq"]);
        names.clear();
        let source = "use crate::verbs::{mr, cq::{a, b}}; use crate::error::E; use super::qp; use super::super::error;\n\
                      fn f() { crate::verbs::pd::now() }";
        collect(source.parse().unwrap(), &["verbs"], 1, &mut names);
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["cq", "mr", "pd", "qp"]);
    }
}
