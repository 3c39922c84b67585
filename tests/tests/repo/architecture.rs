//! The table "Verb to file" of ARCHITECTURE.md: its files exist, and each C name of a row is a `doc(alias)` in a file
//! of that row. So is the C name of every function with a Rust item in the coverage pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The base folder of the table's paths.
const BASE: &str = "sideway/src/ibverbs";
/// The text before the name of a feature; a feature is not a C name.
const FEATURE: &str = "(feature ";

/// The files of each alias below `sideway/src`, as paths from the root of the repository.
type Aliases = BTreeMap<String, BTreeSet<PathBuf>>;

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// C names; the last character may be a `*`.
    names: Vec<String>,
    /// From the root of the repository.
    paths: Vec<PathBuf>,
}

impl Row {
    /// A line with two cells.
    ///
    /// # Errors
    ///
    /// The fault of the line.
    fn parse(line: &str) -> Result<Self, String> {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let [c, rust] = cells[..] else { return Err(format!("two cells: {line}")) };
        let names = codes(c).filter(|(before, _)| !before.ends_with(FEATURE)).map(|(_, name)| name.to_owned());
        let names: Vec<String> = names.collect();
        if let Some(name) = names.iter().find(|name| !is_c_name(name)) {
            return Err(format!("`{name}` is no C name: {line}"));
        }
        let mut paths: Vec<PathBuf> = Vec::new();
        for (_, path) in codes(rust) {
            let path = Path::new(path);
            // A file name without a folder belongs to the folder of the previous path.
            let folder = match paths.last().and_then(|last| last.parent()) {
                Some(beside) if path.components().count() == 1 => beside.to_owned(),
                _ => PathBuf::from(BASE),
            };
            paths.push(plain(&folder.join(path)));
        }
        if paths.is_empty() {
            return Err(format!("no file: {line}"));
        }
        Ok(Self { names, paths })
    }

    /// Paths that the repository lacks, and names that it lacks or has in another file.
    fn faults(&self, root: &Path, aliases: &Aliases) -> Vec<String> {
        let gone = self.paths.iter().filter(|path| !root.join(path).exists());
        let mut faults: Vec<String> = gone.map(|path| format!("{} is not there", path.display())).collect();
        for name in &self.names {
            let files: BTreeSet<&PathBuf> = found(aliases, name).collect();
            if files.is_empty() {
                faults.push(format!("{name} is no doc(alias)"));
            } else if !files.iter().any(|file| self.paths.iter().any(|path| file.starts_with(path))) {
                faults.push(format!("{name} is in {files:?}, and not in {:?}", self.paths));
            }
        }
        faults
    }
}

/// The text in backticks, each with the text before it.
fn codes(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts: Vec<&str> = text.split('`').collect();
    (1..parts.len()).step_by(2).map(move |at| (parts[at - 1], parts[at]))
}

/// A name of one of the libraries, or the start of several.
fn is_c_name(name: &str) -> bool {
    let name = name.strip_suffix('*').unwrap_or(name);
    let known = ["ibv_", "rdma_", "mlx5dv_", "efadv_"].iter().any(|prefix| name.starts_with(prefix));
    known && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The files that have an alias.
fn found<'a>(aliases: &'a Aliases, name: &'a str) -> impl Iterator<Item = &'a PathBuf> {
    let matches = move |alias: &str| match name.strip_suffix('*') {
        Some(beginning) => alias.starts_with(beginning),
        None => alias == name,
    };
    aliases.iter().filter(move |(alias, _)| matches(alias)).flat_map(|(_, files)| files)
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        if part.as_os_str() == ".." {
            whole.pop();
        } else {
            whole.push(part);
        }
        whole
    })
}

/// The rows of the table "Verb to file".
///
/// # Errors
///
/// The first malformed line.
fn rows(text: &str) -> Result<Vec<Row>, String> {
    let section = text.split("\n## ").find(|section| section.starts_with("Verb to file\n")).ok_or("no such section")?;
    let lines = section.lines().filter(|line| line.starts_with('|'));
    // The heading of the table, and the line below it.
    lines.skip(2).map(Row::parse).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder and its subfolders, from the root of the repository.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in entries {
        let path = folder.join(entry.unwrap_or_else(|error| panic!("{error}")).file_name());
        if root().join(&path).is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files
}

/// All aliases of sideway.
fn aliases() -> Aliases {
    let mut aliases = Aliases::new();
    for file in files(Path::new("sideway/src")) {
        let text = read(&root().join(&file));
        for alias in text.split("doc(alias = \"").skip(1).filter_map(|after| Some(after.split_once('"')?.0)) {
            aliases.entry(alias.to_owned()).or_default().insert(file.clone());
        }
    }
    assert!(aliases.len() > 300, "{} aliases", aliases.len());
    aliases
}

#[test]
fn table_names_existing_files_with_their_functions() {
    let rows = rows(&read(&root().join("ARCHITECTURE.md"))).unwrap();
    assert!(rows.len() > 30, "{} rows", rows.len());
    let names: usize = rows.iter().map(|row| row.names.len()).sum();
    assert!(names > 70, "{names} names");
    let aliases = aliases();
    let faults: Vec<String> = rows.iter().flat_map(|row| row.faults(&root(), &aliases)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_wrapped_function_is_found_by_its_c_name() {
    let aliases = aliases();
    let pages = ["coverage.md", "coverage_rdmacm.md"].map(|page| read(&root().join("sideway/src/manual").join(page)));
    let rows = pages.iter().flat_map(|page| page.lines()).filter(|line| line.starts_with("| `"));
    let wrapped: Vec<&str> = rows.filter(|line| !line.contains("| not wrapped: ")).collect();
    assert!(wrapped.len() > 150, "{} rows", wrapped.len());
    let functions = wrapped.iter().flat_map(|line| codes(line.split(" | ").next().unwrap_or(line)));
    let missing: Vec<&str> =
        functions.map(|(_, name)| name).filter(|name| found(&aliases, name).next().is_none()).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn bare_file_name_is_in_the_folder_of_the_previous_path() {
    let row =
        Row::parse("| `ibv_a`, `ibv_b_*` | `x/one.rs` over `two.rs` and `z/`; else: `y/three.rs`, `../v/w/`, `u.rs` |");
    let paths = ["ibverbs/x/one.rs", "ibverbs/x/two.rs", "ibverbs/x/z", "ibverbs/y/three.rs", "v/w", "v/u.rs"];
    let paths = paths.map(|path| Path::new("sideway/src").join(path)).to_vec();
    assert_eq!(row, Ok(Row { names: vec!["ibv_a".to_owned(), "ibv_b_*".to_owned()], paths }));
}

#[test]
fn words_and_features_are_not_names() {
    let row = Row::parse("| which requests a service has | `queue_pair/service.rs` |").unwrap();
    assert!(row.names.is_empty());
    let row = Row::parse("| `mlx5dv_*` (feature `mlx5`) | `../mlx5/` |").unwrap();
    assert_eq!(row.names, ["mlx5dv_*"]);
}

#[test]
fn invented_rows_are_faults() {
    let aliases =
        Aliases::from([("ibv_poll_cq".to_owned(), BTreeSet::from([Path::new(BASE).join("completion/basic.rs")]))]);
    let faults = |line: &str| Row::parse(line).map(|row| row.faults(&root(), &aliases));
    assert_eq!(faults("| `ibv_poll_cq` | `completion/` |"), Ok(vec![]));
    assert_eq!(faults("| `ibv_poll_*` | `completion/basic.rs` over `queue.rs` |"), Ok(vec![]));
    for (line, fault) in [
        ("| `ibv_poll_cq` | `completion/`, `no_such.rs` |", "no_such.rs is not there"),
        ("| `ibv_poll_cq` | `queue_pair/` |", "and not in"),
        ("| `ibv_no_such` | `completion/` |", "ibv_no_such is no doc(alias)"),
        ("| `ibv_no_such_*` | `completion/` |", "is no doc(alias)"),
    ] {
        let found = faults(line).unwrap();
        assert!(matches!(&found[..], [only] if only.contains(fault)), "{line}: {found:?}");
    }
}

#[test]
fn malformed_rows_are_refused() {
    for (line, fault) in [
        ("| `ibv_poll_cq` |", "two cells"),
        ("| `ibv_poll_cq` | `a.rs` | `b.rs` |", "two cells"),
        ("| `ibv_poll_cq` | somewhere |", "no file"),
        ("| `poll_cq` | `completion/` |", "`poll_cq` is no C name"),
        ("| `ibv_poll_cq()` | `completion/` |", "is no C name"),
    ] {
        assert!(Row::parse(line).unwrap_err().contains(fault), "{line}");
    }
    assert_eq!(rows("# A\n\n## Verb to files\n").unwrap_err(), "no such section");
    let table = "# A\n\n## Verb to file\n\n| C | Rust |\n|---|---|\n| `ibv_a` |\n";
    assert!(rows(table).unwrap_err().contains("two cells"));
}
