//! Reads the results out of what test runners print.

use std::io::Write;

/// Sums of libtest's closing lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// Tests that were ignored.
    pub(crate) skipped: u64,
    /// Of the ignored ones those that want a device of the kernel: the softroce and hardware rings run them.
    pub(crate) for_device: u64,
}

impl Counts {
    /// Adds those of another runner.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.for_device += other.for_device;
    }
}

/// The beginning of the names of the test targets that want a device.
pub(crate) const DEVICE_TARGET: &str = "on_device_";

/// Takes a runner's output in pieces of any size, and counts.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    line: Vec<u8>,
    in_device_target: bool,
    counts: Counts,
}

impl Scanner {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.take_line(&without_colours(&String::from_utf8_lossy(&line)));
            } else {
                self.line.push(byte);
            }
        }
    }

    /// What has been counted.
    pub(crate) fn finish(mut self) -> Counts {
        self.feed(b"\n");
        self.counts
    }

    fn take_line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(target) = line.strip_prefix("Running ") {
            self.in_device_target = target.starts_with(&format!("tests/{DEVICE_TARGET}"));
        } else if line.starts_with("Doc-tests ") {
            self.in_device_target = false;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let number = |what: &str| number_before(result, what);
            self.counts.passed += number(" passed");
            self.counts.failed += number(" failed");
            let skipped = number(" ignored");
            self.counts.skipped += skipped;
            if self.in_device_target {
                self.counts.for_device += skipped;
            }
        }
    }
}

/// Passes on what it is given, and counts on the way.
pub(crate) struct Tee<W> {
    /// Who gets all of it.
    pub(crate) sink: W,
    /// Who counts.
    pub(crate) scanner: std::sync::Arc<std::sync::Mutex<Scanner>>,
}

impl<W: Write> Write for Tee<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let length = self.sink.write(bytes)?;
        if let Ok(mut scanner) = self.scanner.lock() {
            scanner.feed(&bytes[..length]);
        }
        Ok(length)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.sink.flush()
    }
}

/// `3` in `ok. 12 passed; 3 failed; …` for ` failed`.
fn number_before(result: &str, what: &str) -> u64 {
    let Some(end) = result.find(what) else { return 0 };
    let start = result[..end].rfind(|letter: char| !letter.is_ascii_digit()).map_or(0, |before| before + 1);
    result[start..end].parse().unwrap_or(0)
}

/// The text without the escape sequences that colour it.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\x1b' {
            // `ESC [ numbers letter`
            letters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Counts {
        let mut scanner = Scanner::default();
        // In small pieces, as they come through a pipe.
        for piece in text.as_bytes().chunks(7) {
            scanner.feed(piece);
        }
        scanner.finish()
    }

    #[test]
    fn results_are_summed() {
        let text = "running 2 tests\ntest a ... ok\n\
                    test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                    test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n";
        assert_eq!(count(text), Counts { passed: 15, failed: 4, skipped: 1, for_device: 0 });
    }

    #[test]
    fn ignored_tests_of_a_device_target_are_known() {
        let text = "     Running tests/on_device_verbs.rs (target/debug/deps/on_device_verbs-1)\n\
                    test result: ok. 0 passed; 0 failed; 5 ignored; 0 measured; 0 filtered out\n\
                    \x1b[1m\x1b[32m     Running\x1b[0m tests/other.rs (target/debug/deps/other-1)\n\
                    test result: \x1b[32mok\x1b[0m. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(text), Counts { passed: 1, failed: 0, skipped: 7, for_device: 5 });
    }

    #[test]
    fn a_last_line_without_an_end_counts() {
        assert_eq!(count("test result: ok. 2 passed; 0 failed; 0 ignored").passed, 2);
        assert_eq!(count("the test result: ok. 2 passed").passed, 0);
    }
}
