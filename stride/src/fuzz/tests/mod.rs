//! Replays each stored input.

// Both crates share this code. It belongs to the published one, whose tests must build on their own.
#[path = "../../../../softrnic/src/fuzz/tests/corpus.rs"]
mod corpus;
mod seeds;

use self::corpus::Target;

const TARGETS: [(&str, Target); 3] =
    [("control", super::control), ("results", super::results), ("command_line", super::command_line)];

#[test]
fn stored_inputs_behave_as_named() {
    corpus::replay(&TARGETS);
}

#[test]
#[ignore = "writes the stored inputs; run it after changing them"]
fn write_stored_inputs() {
    corpus::write(&TARGETS, seeds::all());
}
