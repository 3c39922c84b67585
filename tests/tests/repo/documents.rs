//! Links, and files and folders in backticks, in the documents exist. So do the tests and messages that pages name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that are not searched, because they contain no sources, or more files than documents name.
const LEFT_OUT: [&str; 4] = [".git", "target", "corpus", "artifacts"];
/// The documents whose paths are all checked.
const NAMING_PATHS: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SAFETY.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files and folders of the repository, from its root.
fn all() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(root().join(&folder)).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let name = entry.unwrap_or_else(|error| panic!("{error}")).file_name();
            let is_left_out = LEFT_OUT.iter().any(|left_out| name == **left_out);
            let path = folder.join(name);
            found.insert(path.to_string_lossy().into_owned());
            if !is_left_out && root().join(&path).is_dir() {
                folders.push(path);
            }
        }
    }
    assert!(found.len() > 500, "{} files", found.len());
    found
}

/// The folders of the published crates.
fn published() -> Vec<PathBuf> {
    let manifests = all().into_iter().filter(|path| path.ends_with("/Cargo.toml")).map(|path| root().join(path));
    let published = manifests.filter(|path| !read(path).lines().any(|line| line == "publish = false"));
    published.map(|path| path.with_file_name("")).collect()
}

/// A document without its blocks of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The link targets of a document, except those on other hosts.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|after| Some(after.split_once(')')?.0.to_owned()));
    targets.filter(|target| !target.starts_with("https://")).collect()
}

/// The anchors of a document's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}

/// The dead links in a document in `folder`.
fn dead_links(folder: &Path, text: &str) -> Vec<String> {
    let is_alive = |link: &str| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = folder.join(path);
        match (path, anchor) {
            (_, "") => target.exists(),
            ("", _) => anchors(text).contains(anchor),
            _ => fs::read_to_string(target).is_ok_and(|text| anchors(&text).contains(anchor)),
        }
    };
    links(text).into_iter().filter(|link| !is_alive(link)).collect()
}

/// The paths in backticks: at least two names and a slash, in the letters of paths here. The last name may end in `*`.
fn paths(text: &str) -> Vec<String> {
    let text = prose(text);
    let codes = text.split('`').skip(1).step_by(2).map(|code| code.trim_start_matches("../"));
    let is_path = |code: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.' | '*');
        code.split_once('/').is_some_and(|(first, _)| !first.is_empty()) && code.chars().all(is_letter)
    };
    // Build output is not in the repository.
    codes.filter(|code| is_path(code) && !code.starts_with("target/")).map(str::to_owned).collect()
}

/// Whether a file or folder exists with this path from the root, or with this end of its path.
fn is_there(path: &str, all: &BTreeSet<String>) -> bool {
    let path = path.trim_end_matches('/');
    all.iter().any(|known| {
        // Compares the last components, as many as the path has.
        let at = known.rmatch_indices('/').nth(path.matches('/').count()).map_or(0, |(at, _)| at + 1);
        let end = &known[at..];
        match path.split_once('*') {
            None => end == path,
            Some((start, rest)) => end.len() >= path.len() - 1 && end.starts_with(start) && end.ends_with(rest),
        }
    })
}

#[test]
fn links_have_a_target() {
    let documents: Vec<String> = all().into_iter().filter(|path| path.ends_with(".md")).collect();
    assert!(documents.len() > 10, "{documents:?}");
    let mut count = 0;
    for document in documents {
        let path = root().join(&document);
        // Rust's documentation has its own links, which rustdoc checks.
        if document.starts_with("sideway/src/") {
            continue;
        }
        let text = read(&path);
        let dead = dead_links(path.parent().unwrap(), &text);
        assert!(dead.is_empty(), "{document}: {dead:?}");
        count += links(&text).len();
    }
    assert!(count > 30, "{count} links");
}

/// A registry shows the page of a crate without the repository.
#[test]
fn published_readme_has_no_link_into_the_repository() {
    for package in published() {
        let links = links(&read(&package.join("README.md")));
        let outside: Vec<&String> = links.iter().filter(|link| !link.starts_with('#')).collect();
        assert!(outside.is_empty(), "{}/README.md: {outside:?}", package.display());
    }
}

#[test]
fn published_crate_has_the_licences() {
    for package in published() {
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert_eq!(read(&package.join(name)), read(&root().join(name)), "{}/{name}", package.display());
        }
    }
}

#[test]
fn named_paths_exist() {
    let all = all();
    for document in NAMING_PATHS {
        let paths = paths(&read(&root().join(document)));
        assert!(!paths.is_empty(), "{document} names no path");
        let gone: Vec<&String> = paths.iter().filter(|path| !is_there(path, &all)).collect();
        assert!(gone.is_empty(), "{document}: {gone:?}");
    }
}

/// The names in backticks in the last cell of each row of the tables.
fn tests_of_rows(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("|---"));
    let cells = rows.filter_map(|line| line.trim_end_matches('|').rsplit(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // The simulator is a program of many tests.
    names.filter(|name| *name != "sim").map(str::to_owned).collect()
}

#[test]
fn tests_against_faults_exist() {
    let folders = ["trespass/", "trespass-rpc/", "tests/models/"];
    let is_source = |path: &&String| path.ends_with(".rs") && folders.iter().any(|folder| path.starts_with(folder));
    let sources: Vec<String> = all().iter().filter(is_source).map(|path| read(&root().join(path))).collect();
    let names = tests_of_rows(&read(&root().join("docs/faults.md")));
    assert!(names.len() > 80, "{names:?}");
    let is_gone = |name: &&String| !sources.iter().any(|text| text.contains(&format!("fn {name}(")));
    let gone: Vec<&String> = names.iter().filter(is_gone).collect();
    assert!(gone.is_empty(), "docs/faults.md: {gone:?}");
}

/// The parts of the messages in the first cell of each row. `…` stands for names and numbers.
fn messages(text: &str) -> Vec<&str> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.flat_map(|cell| cell.split('…')).map(str::trim).filter(|part| part.len() > 3).collect()
}

/// The code of a source file, in which the strings have no line breaks.
fn code(text: &str) -> String {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    lines.map(|line| line.strip_suffix('\\').map_or_else(|| format!("{line}\n"), str::to_owned)).collect()
}

#[test]
fn messages_of_the_guide_are_in_the_code() {
    let is_source = |path: &&String| path.ends_with(".rs") && !path.starts_with("tests/");
    let sources: Vec<String> = all().iter().filter(is_source).map(|path| code(&read(&root().join(path)))).collect();
    let page = read(&root().join("docs/errors.md"));
    let messages = messages(&page);
    assert!(messages.len() > 40, "{messages:?}");
    let is_gone = |part: &&&str| !sources.iter().any(|text| text.contains(&part.replace('"', "\\\"")));
    let gone: Vec<&&str> = messages.iter().filter(is_gone).collect();
    assert!(gone.is_empty(), "docs/errors.md: {gone:?}");
}

#[test]
fn missing_targets_are_found() {
    let text = "# One thing\n[a](#one-thing) [b](#other) [c](README.md) [d](no/such.md) [e](README.md#no-such)\n```\n[f](gone)\n```\n";
    assert_eq!(dead_links(&root(), text), ["#other", "no/such.md", "README.md#no-such"]);
    assert_eq!(paths("`a/b.rs` `word` `two words/x` `../c/d*` `target/x`\n```\n`e/f`\n```\n"), ["a/b.rs", "c/d*"]);
    let all = BTreeSet::from(["one/two/three.rs".to_owned(), "four".to_owned()]);
    for (path, expected) in
        [("two/three.rs", true), ("two/th*.rs", true), ("o/three.rs", false), ("two/", false), ("two/x*", false)]
    {
        assert_eq!(is_there(path, &all), expected, "{path}");
    }
}
