//! Parses the results of test programs from their output.

use std::collections::VecDeque;
use std::io::Write;

/// The results of test programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// Tests that were ignored.
    pub(crate) skipped: u64,
    /// The ignored tests that are left to the softroce and hardware rings. In the results of these rings, the number of
    /// such tests that ran.
    pub(crate) for_device: u64,
    /// The output about failures, by program.
    pub(crate) failures: Vec<String>,
}

impl Results {
    /// Adds the results of another program.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.for_device += other.for_device;
        self.failures.extend_from_slice(&other.failures);
    }
}

/// Lines that are kept of a program's failures.
const KEPT: usize = 100;

/// Last lines that are kept of a program that hangs.
const TAIL: usize = 40;

/// Sums the closing lines of libtest in its input, and keeps the output about failures.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    line: Vec<u8>,
    program: String,
    /// The last lines of the whole output.
    tail: VecDeque<String>,
    /// The output about failures, from the first `failures:` to the closing line.
    story: Option<VecDeque<String>>,
    results: Results,
}

impl Scanner {
    /// The counts so far.
    pub(crate) fn finish(&mut self) -> Results {
        if !self.line.is_empty() {
            self.take_line();
        }
        self.keep_story();
        std::mem::take(&mut self.results)
    }

    /// The counts of a program that was killed: one more failure, with its last lines.
    pub(crate) fn finish_killed(&mut self, why: &str) -> Results {
        let mut results = self.finish();
        let lines: String = self.tail.iter().flat_map(|line| ["\n    ", line.as_str()]).collect();
        results.failures.push(format!("{}\n    {why}; the last lines:{lines}", self.program));
        results.failed += 1;
        results
    }

    fn take_line(&mut self) {
        let line = without_colours(&String::from_utf8_lossy(&std::mem::take(&mut self.line)));
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.clone());
        if let Some(result) = line.trim().strip_prefix("test result: ") {
            self.results.passed += number_before(result, " passed");
            self.results.failed += number_before(result, " failed");
            self.results.skipped += number_before(result, " ignored");
            self.keep_story();
        } else if let Some(story) = &mut self.story {
            if story.len() == KEPT {
                story.pop_front();
            }
            story.push_back(line);
        } else if line == "failures:" {
            self.story = Some(VecDeque::new());
        } else if ["Running ", "Doc-tests "].iter().any(|start| line.trim_start().starts_with(start)) {
            line.trim().clone_into(&mut self.program);
        }
    }

    fn keep_story(&mut self) {
        if let Some(story) = self.story.take() {
            let lines: String = story.iter().flat_map(|line| ["\n    ", line.as_str()]).collect();
            self.results.failures.push(format!("{}{lines}", self.program));
        }
    }
}

impl Write for Scanner {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for &byte in bytes {
            match byte {
                b'\n' => self.take_line(),
                byte => self.line.push(byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// `3` in `ok. 12 passed; 3 failed; …` for ` failed`.
fn number_before(result: &str, what: &str) -> u64 {
    let Some(end) = result.find(what) else { return 0 };
    let start = result[..end].rfind(|letter: char| !letter.is_ascii_digit()).map_or(0, |before| before + 1);
    result[start..end].parse().unwrap_or(0)
}

/// The text without colour escape sequences.
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

    fn count(text: &str) -> Results {
        let mut scanner = Scanner::default();
        // The text arrives in small pieces, as from a pipe.
        for piece in text.as_bytes().chunks(7) {
            scanner.write_all(piece).unwrap();
        }
        scanner.finish()
    }

    #[test]
    fn results_are_summed() {
        let text = "running 2 tests\ntest a ... ok\n\
                    test result: \x1b[32mok\x1b[0m. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(count(text), Results { passed: 15, failed: 4, skipped: 1, ..Results::default() });
        assert_eq!(count("the test result: ok. 2 passed").passed, 0);
    }

    #[test]
    fn failures_are_kept_with_their_output() {
        let text = "     Running tests/a.rs (target/a-1)\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\n\
                    Running away\nleft: 1\n\nfailures:\n    a\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n\
                     Running tests/b.rs (target/b-1)\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        let results = count(text);
        let [failure] = &results.failures[..] else { panic!("one failure") };
        assert!(failure.starts_with("Running tests/a.rs (target/a-1)\n") && failure.contains("\n    left: 1\n"));
        assert_eq!((results.passed, results.failed), (2, 1));
        let long = (0..1000).map(|number| format!("line {number}\n")).collect::<String>();
        let [failure] = &count(&format!("failures:\n{long}")).failures[..] else { panic!("one failure") };
        assert!(failure.lines().count() == KEPT + 1 && failure.ends_with("line 999"), "{failure}");
    }
}
