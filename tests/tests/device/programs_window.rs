//! The example `memory_window` as a program.

use std::process::Command;

use sideway_tests::child::{self, example};
use sideway_tests::device;
use sideway_tests::programs::{LIMIT, fails, refuses, succeeds};

fn memory_window(options: &str) -> Command {
    let mut command = example("memory_window");
    command.args(["-d", &device::name()]).args(options.split_whitespace());
    command
}

/// The steps of both sides in a round, in order.
const OWNER: [&str; 9] = [
    "the owner invalidates the key",
    "  owner: has 4096 bytes at 0x",
    "  owner: binds a window for reads and writes to 64 bytes at 0x",
    "  peer:  receives the address 0x",
    "  peer:  reads there `this is from the owner`",
    "  peer:  writes there `and this from the peer`",
    "  owner: finds that in its memory",
    "  owner: invalidates the key",
    "  peer:  tries to read again: remote access error, as expected",
];
const PEER: [&str; 10] = [
    "the peer invalidates the key",
    OWNER[1],
    OWNER[2],
    OWNER[3],
    OWNER[4],
    OWNER[5],
    OWNER[6],
    "  peer:  sends `done with it` with invalidate",
    "  owner: receives it",
    OWNER[8],
];

/// The lines that begin with `steps`, from the first match on.
#[track_caller]
fn goes(output: &str, steps: &[&str]) {
    let first = steps.first().expect("there are steps");
    let lines: Vec<&str> = output.lines().skip_while(|line| !line.starts_with(first)).take(steps.len()).collect();
    assert_eq!(lines.len(), steps.len(), "{output}");
    for (line, step) in lines.iter().zip(steps) {
        assert!(line.starts_with(step), "`{line}` is not `{step}`:\n{output}");
    }
}

#[test]
fn window_key_is_used_and_invalidated_by_either_side() {
    if !device::has_windows() {
        return;
    }
    let mut rounds = 0;
    for (options, owner, peer) in
        [("", true, true), ("--by both", true, true), ("--by owner", true, false), ("--by peer", false, true)]
    {
        let ended = child::run(memory_window(options), LIMIT);
        succeeds(&ended, &[]);
        for (takes_part, steps) in [(owner, &OWNER[..]), (peer, &PEER[..])] {
            match (takes_part, steps) {
                (true, steps) => goes(&ended.output, steps),
                (false, steps) => assert!(!ended.output.contains(steps[0]), "{options}: {}", ended.output),
            }
            rounds += 1;
        }
    }
    assert_eq!(rounds, 8);
}

#[test]
fn impossible_options_are_errors_in_a_sentence() {
    let run = |options: &str| child::run(memory_window(options), LIMIT);
    fails(&run("-g 200"), &["GID index 200", "is not in use"]);
    fails(&run("-i 77"), &["there is no port 77"]);
    for arguments in ["--by neither", "--timeout -1", "localhost", "-p 9"] {
        refuses("memory_window", arguments);
    }
}
