//! The `cargo` commands in the documents name packages, programs, examples and subcommands that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders that contain no sources.
const LEFT_OUT: [&str; 3] = [".git", "target", "corpus"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files of the repository, from its root.
fn files() -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(root().join(&folder)).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let name = entry.unwrap_or_else(|error| panic!("{error}")).file_name();
            let path = folder.join(&name);
            if !root().join(&path).is_dir() {
                found.push(path.to_string_lossy().into_owned());
            } else if LEFT_OUT.iter().all(|left_out| name != **left_out) {
                folders.push(path);
            }
        }
    }
    found
}

/// What a `cargo` command can name.
struct Names {
    /// Packages and programs: each `name = "…"` of a manifest, and the files in `src/bin`.
    targets: BTreeSet<String>,
    /// The files and folders in `examples` and `benches`.
    examples: BTreeSet<String>,
    /// The files and folders in `xtask/src`.
    tasks: BTreeSet<String>,
}

impl Names {
    fn of_repository(files: &[String]) -> Self {
        let mut names = Self { targets: BTreeSet::new(), examples: BTreeSet::new(), tasks: BTreeSet::new() };
        for file in files {
            if file.ends_with("Cargo.toml") {
                let text = read(&root().join(file));
                let lines = text.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
                names.targets.extend(lines.map(str::to_owned));
            }
            let parts: Vec<&str> = file.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part)).collect();
            for pair in parts.windows(2) {
                match pair[0] {
                    "bin" => names.targets.insert(pair[1].to_owned()),
                    "examples" | "benches" => names.examples.insert(pair[1].to_owned()),
                    _ => false,
                };
            }
            if let ["xtask", "src", task, ..] = parts[..] {
                names.tasks.insert(task.replace('_', "-"));
            }
        }
        names
    }

    /// The faults of a command, which begins with `cargo`.
    fn faults(&self, command: &str) -> Vec<String> {
        let words: Vec<&str> =
            command.split_whitespace().take_while(|word| !["--", "#", "&", "&&"].contains(word)).collect();
        let mut faults = Vec::new();
        for pair in words.windows(2) {
            let [option, name] = [pair[0], pair[1]];
            let is_known = match option {
                "-p" | "--package" | "--bin" => self.targets.contains(name),
                "--example" | "--bench" => self.examples.contains(name) || self.targets.contains(name),
                "xtask" => self.tasks.contains(name),
                "--path" => root().join(name).join("Cargo.toml").exists(),
                _ => true,
            };
            if !is_known {
                faults.push(format!("no {option} {name}: {command}"));
            }
        }
        faults
    }
}

/// The `cargo` commands in a document's blocks of code.
fn commands(text: &str) -> Vec<&str> {
    let blocks = text.split("```").skip(1).step_by(2);
    let lines =
        blocks.filter(|block| ["console", "sh"].iter().any(|kind| block.starts_with(kind))).flat_map(str::lines);
    let commands = lines.map(|line| line.trim_start_matches("$ ")).flat_map(|line| line.split("&& ").map(str::trim));
    commands.filter(|command| command.starts_with("cargo ")).collect()
}

#[test]
fn commands_of_documents_name_what_exists() {
    let files = files();
    let names = Names::of_repository(&files);
    let is_document = |file: &&String| file.ends_with("README.md") || file.starts_with("docs/") || !file.contains('/');
    let mut count = 0;
    for document in files.iter().filter(|file| file.ends_with(".md")).filter(is_document) {
        let text = read(&root().join(document));
        let commands = commands(&text);
        let faults: Vec<String> = commands.iter().flat_map(|command| names.faults(command)).collect();
        assert!(faults.is_empty(), "{document}: {faults:#?}");
        count += commands.len();
    }
    assert!(count > 60, "{count} commands");
}

#[test]
fn invented_names_are_faults() {
    let names = Names::of_repository(&files());
    let text = "```console\n$ cargo run -p no-such --example echo -- -p x\n$ cargo xtask no-such\nprinted\n```\n```rust\ncargo run -p a\n```\n";
    let found: Vec<String> = commands(text).into_iter().flat_map(|command| names.faults(command)).collect();
    let expected =
        ["no -p no-such: cargo run -p no-such --example echo -- -p x", "no xtask no-such: cargo xtask no-such"];
    assert_eq!(found, expected);
}
