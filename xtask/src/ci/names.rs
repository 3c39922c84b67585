//! The step `names`: tests reserve the names of the host that they use, and do not measure time.
//!
//! Another process can take a port, a file or another name that was free a moment ago. The package `sideway-test-names`
//! reserves names. The step searches the statements of all Rust files, without comments, for known faults.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::repo;

/// Files in which the searched texts are no faults: the package itself, and this file.
const EXEMPT: [&str; 2] = ["tests/names/", "xtask/src/ci/names.rs"];
const PORT: &str = "the port is free for others at once; use sideway_test_names::Port";
const FIXED: &str = "another process may have this port; use port 0 and keep the socket, or sideway_test_names::Port";
const NAME: &str = "another process may use this name; use sideway_test_names::Folder or unique";
const TIME: &str = "a busy machine is slower; wait for at least 60 s, or assert no time";

/// Searches all files.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut faults = Vec::new();
    for path in repo::files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if name.ends_with(".rs") && !EXEMPT.iter().any(|exempt| name.starts_with(exempt)) {
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
            faults.extend(search(&name, &source).iter().map(|(line, why)| format!("{name}:{line}: {why}")));
        }
    }
    ensure!(faults.is_empty(), "names of the host and times in tests:\n{}", faults.join("\n"));
    Ok(())
}

/// The faults of a file, with the lines on which their statements end.
fn search(name: &str, source: &str) -> Vec<(usize, &'static str)> {
    let mut is_test = name.split('/').any(|part| part == "tests") || name.ends_with("tests.rs");
    let (mut faults, mut statement, mut before) = (Vec::new(), String::new(), String::new());
    for (line, text) in (1..).zip(source.lines().map(str::trim)) {
        is_test |= text.starts_with("#[cfg(test)]");
        if !text.starts_with("//") {
            statement.extend(text.split_whitespace());
        }
        if text.ends_with([';', '{', '}']) {
            faults.extend(fault(&statement, &before, is_test).map(|why| (line, why)));
            before = std::mem::take(&mut statement);
        }
    }
    faults
}

/// The fault of a statement without blanks, which follows the statement `before`.
fn fault(statement: &str, before: &str, is_test: bool) -> Option<&'static str> {
    let has = |texts: &[&str]| texts.iter().any(|text| statement.contains(text));
    let after = |texts: [&str; 3]| texts.iter().any(|text| statement.split(text).skip(1).any(is_fixed));
    let dropped = statement.strip_prefix("drop(").and_then(|rest| rest.strip_suffix(");"));
    let is_read =
        |name: &str| [".local_addr()", ".port()"].iter().any(|read| before.contains(&format!("{name}{read}")));
    let is_bound = statement.split("Listener::bind(").nth(1).is_some_and(|rest| rest.contains(".port()"));
    let is_name = has(&["temp_dir()", "\"/tmp/", "\"/dev/shm/"]) || has(&["format!("]) && has(&["process::id()"]);
    let limit = statement.split_once("elapsed()<").filter(|_| has(&["assert!("]));
    match () {
        () if is_bound || dropped.is_some_and(is_read) => Some(PORT),
        () if !is_test => None,
        () if after(["::bind(", ".bind(", ".bind_addr("]) => Some(FIXED),
        () if is_name => Some(NAME),
        () => limit.is_some_and(|(_, limit)| is_short(limit)).then_some(TIME),
    }
}

/// Whether the arguments of a call that binds end with a port of at least four digits.
fn is_fixed(rest: &str) -> bool {
    let arguments = rest.split(')').next().unwrap_or_default().trim_end_matches('"').replace('_', "");
    let port = arguments.rsplit_once([':', ',']).map_or("", |(_, port)| port);
    port.len() >= 4 && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a duration is written as less than 60 s.
fn is_short(limit: &str) -> bool {
    let Some((_, limit)) = limit.split_once("Duration::from_") else { return false };
    limit.strip_prefix("secs(").and_then(|rest| rest.split(')').next()?.parse().ok()).unwrap_or(0) < 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_found_with_its_remedy() {
        let port = "// One.\nlet a = TcpListener::bind(\"[::]:0\")\n    .unwrap().local_addr().unwrap().port();";
        assert_eq!(search("a/src/b.rs", port), [(3, PORT)], "in programs too");
        for (source, why) in [
            ("let port = server.local_addr().port(); drop(server);", PORT),
            ("TcpListener::bind(\"127.0.0.1:7471\");", FIXED),
            ("Listener::bind((HERE, 21_000));", FIXED),
            ("let a = std::env::temp_dir();", NAME),
            ("rename(\"/tmp/a\", \"/dev/shm/a\");", NAME),
            ("let a = format!(\"a-{}\", std::process::id());", NAME),
            ("assert!(begun.elapsed() < Duration::from_secs(5), \"late\");", TIME),
            ("assert!(begun.elapsed() < std::time::Duration::from_millis(1));", TIME),
        ] {
            let found = search("a/tests/b.rs", &source.replace("; ", ";\n"));
            assert_eq!(found.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [why], "{source}");
        }
    }

    #[test]
    fn reserved_names_programs_and_hang_limits_are_no_faults() {
        let source = "let a = bind((\"::\", port.number()));\na.bind(\"[::1]:0\");\n// \"/tmp/a\"\nmap.bind(1, 5);\n\
                      assert!(a.elapsed() < Duration::from_secs(60));\nassert!(a.elapsed() < LONG);\n\
                      let port = a.local_addr().port();\nuse_it(port);\ndrop(a);";
        assert_eq!(search("tests/a.rs", source), []);
        let program = "temp_dir();\nListener::bind(\"0.0.0.0:7472\");\n#[cfg(test)]\ntemp_dir();";
        assert_eq!(search("a/src/b.rs", program), [(4, NAME)]);
    }

    #[test]
    fn this_repository_has_no_faults() {
        check(&repo::root().unwrap()).unwrap();
    }
}
