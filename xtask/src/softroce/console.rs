//! The last output of a guest that died or timed out.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::machine::Machine;

/// Lines shown from a log.
const SHOWN: usize = 15;
/// Log folders that are kept.
const KEPT: usize = 20;

/// Creates a folder for the logs of one run, and removes those of old runs.
pub(crate) fn new_folder(home: &Path) -> Result<PathBuf> {
    let logs = home.join("logs");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // The name begins with the time, so that names sort by age. The process ID follows, because two runs may start in
    // the same millisecond.
    let folder = logs.join(format!("{:014}-{}", now.as_millis(), std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut all: Vec<PathBuf> = std::fs::read_dir(&logs)?.flatten().map(|entry| entry.path()).collect();
    all.sort();
    for old in all.iter().take(all.len().saturating_sub(KEPT)) {
        let _ = std::fs::remove_dir_all(old);
    }
    Ok(folder)
}

/// Reports the known cause of a guest that ended before its command.
pub(crate) fn death(machine: &Machine, booted: bool) -> String {
    let console = read(&machine.console());
    let when = if booted { "while the command ran" } else { "before the command could run" };
    let cause = cause(&console).unwrap_or_else(|| "QEMU ended".to_owned());
    let mut text = format!("the guest died {when}: {cause}\n");
    let messages = read(&machine.messages());
    if !messages.trim().is_empty() {
        text.push_str(&last_lines("QEMU", &messages));
    }
    text.push_str(&last_lines("the console", &console));
    text.push_str(&format!("All of it: {}", machine.logs.display()));
    text
}

/// The last lines of the console, for a run that timed out.
pub(crate) fn tail(machine: &Machine) -> String {
    last_lines("the console", &read(&machine.console()))
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).replace('\r', "")
}

/// The most telling line: an error of our scripts, else the kernel's first line about a fault.
fn cause(console: &str) -> Option<String> {
    let find = |mark: &str| console.lines().find_map(|line| line.find(mark).map(|start| line[start..].to_owned()));
    find("softroce: FAILED:")
        .or_else(|| find("BUG: "))
        .or_else(|| find("Oops: "))
        .or_else(|| find("Kernel panic"))
        .or_else(|| find("Out of memory"))
}

fn last_lines(of: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return format!("{of} is empty\n");
    }
    let mut shown = format!("last lines of {of}:\n");
    for line in &lines[lines.len().saturating_sub(SHOWN)..] {
        shown.push_str("  | ");
        shown.push_str(line);
        shown.push('\n');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_error_takes_precedence_over_the_kernel() {
        let console = "[ 1.0] x\n[ 2.0] BUG: kernel NULL pointer dereference\n[ 2.1] Kernel panic - not syncing\n";
        assert_eq!(cause(console).unwrap(), "BUG: kernel NULL pointer dereference");
        assert_eq!(
            cause(&format!("{console}softroce: FAILED: insmod veth\n")).unwrap(),
            "softroce: FAILED: insmod veth"
        );
        assert_eq!(cause("all is well"), None);
    }

    #[test]
    fn only_a_few_last_lines_are_shown() {
        let text: String = (0..100).map(|number| format!("{number}\n")).collect();
        let shown = last_lines("it", &text);
        assert_eq!(shown.lines().count(), SHOWN + 1);
        assert!(shown.ends_with("  | 99\n"), "{shown}");
    }
}
