//! Reads the results out of what test runners print.

use std::collections::VecDeque;
use std::io::Write;

/// Sums of libtest's closing lines, and what stands above them of the tests that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// Tests that were ignored.
    pub(crate) skipped: u64,
    /// Of the ignored ones those that want a device of the kernel: the softroce and hardware rings run them.
    pub(crate) for_device: u64,
    /// Those that failed.
    pub(crate) failures: Vec<Failure>,
    /// Those that failed, and passed when they were tried again alone. They count as passed.
    pub(crate) unsteady: Vec<Failure>,
    /// A test program ended without a closing line, or not as one does of which tests failed: there is more than is known by name.
    pub(crate) broken: bool,
}

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    /// As the runner names its program.
    pub(crate) program: String,
    /// Its name in that program.
    pub(crate) test: String,
    /// The last lines of what it printed.
    pub(crate) story: VecDeque<String>,
    /// It tries something else each time, and has found what fails.
    pub(crate) is_by_chance: bool,
}

impl Results {
    /// Adds those of another runner.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.for_device += other.for_device;
        self.failures.extend_from_slice(&other.failures);
        self.unsteady.extend_from_slice(&other.unsteady);
        self.broken |= other.broken;
    }

    /// The tests that failed did not when they were tried again.
    pub(crate) fn forgive(&mut self) {
        self.passed += self.failed;
        self.failed = 0;
        self.unsteady.append(&mut self.failures);
    }
}

/// The beginning of the names of programs whose tests stand in comments.
pub(crate) const DOCUMENTS: &str = "Doc-tests ";

/// What proptest says of what it has found.
const FOUND: &str = "minimal failing input";

/// The test target that wants a device.
pub(crate) const DEVICE_TARGET: &str = "device";

/// Takes a runner's output in pieces of any size, and results.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    line: Vec<u8>,
    program: String,
    /// Its closing line has not come.
    open: bool,
    part: Part,
    /// Of this program.
    failures: Vec<Failure>,
    results: Results,
}

/// Where a test program is in what it prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Tests,
    /// What those that failed have printed, each below `---- NAME stdout ----`.
    Stories,
    /// The names of those that failed, each set off by four blanks.
    Names,
}

/// So many lines are kept of what a test printed.
const STORY: usize = 40;

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
    pub(crate) fn finish(mut self) -> Results {
        self.feed(b"\n");
        self.results.broken |= self.open;
        self.results
    }

    fn take_line(&mut self, line: &str) {
        let text = line.trim();
        // Also what a test prints may begin so: of another cargo, say.
        let is_told = self.part != Part::Stories;
        if let Some(program) = text.strip_prefix("Running ").filter(|program| is_told || program.ends_with(')')) {
            self.begin(program);
        } else if is_told && text.starts_with(DOCUMENTS) {
            self.begin(text);
        } else if let Some(result) = text.strip_prefix("test result: ") {
            self.end(result);
        } else if text.contains("process didn't exit successfully") && !text.contains("(exit status: 101)") {
            self.results.broken = true;
        } else if text == "failures:" {
            self.part = if self.part == Part::Tests { Part::Stories } else { Part::Names };
        } else if self.part == Part::Stories {
            self.take_story(line);
        } else if let (Part::Names, Some(test)) = (self.part, line.strip_prefix("    ")) {
            // One that had printed nothing.
            if self.failures.iter().all(|failure| failure.test != test) {
                self.add_failure(test);
            }
        }
    }

    fn begin(&mut self, program: &str) {
        self.results.broken |= self.open;
        program.clone_into(&mut self.program);
        (self.open, self.part) = (true, Part::Tests);
        self.failures.clear();
    }

    fn end(&mut self, result: &str) {
        let number = |what: &str| number_before(result, what);
        self.results.passed += number(" passed");
        self.results.failed += number(" failed");
        let skipped = number(" ignored");
        self.results.skipped += skipped;
        if self.program.starts_with(&format!("tests/{DEVICE_TARGET}/")) {
            self.results.for_device += skipped;
        }
        (self.open, self.part) = (false, Part::Tests);
        self.results.failures.append(&mut self.failures);
    }

    fn take_story(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.add_failure(test);
        } else if let Some(last) = self.failures.last_mut() {
            last.is_by_chance |= line.contains(FOUND);
            if last.story.len() == STORY {
                last.story.pop_front();
            }
            last.story.push_back(line.to_owned());
        }
    }

    fn add_failure(&mut self, test: &str) {
        let program = self.program.split_once(" (").map_or(&*self.program, |(name, _)| name);
        let (program, test) = (program.to_owned(), test.to_owned());
        self.failures.push(Failure { program, test, ..Failure::default() });
    }
}

/// Passes on what it is given, and results on the way.
pub(crate) struct Tee<W> {
    /// Who gets all of it.
    pub(crate) sink: W,
    /// Who results.
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

    fn count(text: &str) -> Results {
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
        assert_eq!(count(text), Results { passed: 15, failed: 4, skipped: 1, ..Results::default() });
    }

    #[test]
    fn ignored_tests_of_a_device_target_are_known() {
        let text = "     Running tests/device/main.rs (target/debug/deps/device-1)\n\
                    test result: ok. 0 passed; 0 failed; 5 ignored; 0 measured; 0 filtered out\n\
                    \x1b[1m\x1b[32m     Running\x1b[0m tests/other.rs (target/debug/deps/other-1)\n\
                    test result: \x1b[32mok\x1b[0m. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(text), Results { passed: 1, skipped: 7, for_device: 5, ..Results::default() });
    }

    #[test]
    fn a_last_line_without_an_end_counts() {
        assert_eq!(count("test result: ok. 2 passed; 0 failed; 0 ignored").passed, 2);
        assert_eq!(count("the test result: ok. 2 passed").passed, 0);
    }

    #[test]
    fn what_failed_is_known_with_what_it_printed() {
        let text = "     Running unittests src/lib.rs (target/debug/deps/nic-1)\n\nrunning 3 tests\n\
                    test a ... FAILED\ntest b ... FAILED\ntest c ... ok\n\nfailures:\n\n\
                    ---- a stdout ----\nthread 'a' panicked at lib.rs:1:1:\nleft: 1\n\n\n\
                    failures:\n    a\n    b\n\n\
                    test result: FAILED. 1 passed; 2 failed; 0 ignored\n\
                     Running tests/other.rs (target/debug/deps/other-1)\n\
                    test result: ok. 1 passed; 0 failed; 0 ignored\n";
        let results = count(text);
        let found: Vec<_> = results.failures.iter().map(|failure| (&*failure.program, &*failure.test)).collect();
        assert_eq!(found, [("unittests src/lib.rs", "a"), ("unittests src/lib.rs", "b")]);
        assert!(results.failures[0].story.contains(&"left: 1".to_owned()) && results.failures[1].story.is_empty());
        assert_eq!((results.passed, results.failed, results.broken), (2, 2, false));
    }

    #[test]
    fn what_a_test_prints_of_other_programs_is_part_of_its_story() {
        let text = "Running p (p)\nfailures:\n\n---- a stdout ----\nRunning away\nDoc-tests of it\n\nfailures:\n    a\n\n\
                    test result: FAILED. 0 passed; 1 failed;\n";
        let [failure] = &count(text).failures[..] else { panic!("one failure") };
        assert_eq!((&*failure.program, failure.story.len()), ("p", 3));
    }

    #[test]
    fn of_a_long_story_the_end_is_kept() {
        let lines: String = (0..1000).map(|number| format!("line {number}\n")).collect();
        let text =
            format!("Running a\nfailures:\n---- a stdout ----\n{lines}failures:\n    a\ntest result: 1 failed;\n");
        let [failure] = &count(&text).failures[..] else { panic!("one failure") };
        assert_eq!(failure.story.len(), STORY);
        assert_eq!(failure.story.back().map(String::as_str), Some("line 999"));
    }

    #[test]
    fn a_program_without_a_closing_line_is_broken() {
        let ended = "Running a\ntest result: ok. 1 passed; 0 failed\n";
        assert!(!count(ended).broken);
        for text in [format!("Running b\n{ended}"), format!("{ended}Running b\nrunning 2 tests\n")] {
            assert!(count(&text).broken, "{text}");
        }
        let told = |status| format!("{ended}  process didn't exit successfully: `target/b` (exit status: {status})\n");
        assert!(count(&told(66)).broken && !count(&told(101)).broken);
    }

    #[test]
    fn what_is_forgiven_counts_as_passed_and_is_told() {
        let mut results = count("Running a\nfailures:\n\nfailures:\n    a\ntest result: FAILED. 1 passed; 1 failed;\n");
        results.forgive();
        assert_eq!((results.passed, results.failed, results.unsteady.len()), (2, 0, 1));
    }
}
