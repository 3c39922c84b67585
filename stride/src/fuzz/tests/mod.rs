//! Replays each stored input of the fuzz targets.

// softrnic and this crate share this code. The file is part of softrnic, because softrnic is published, so its tests
// must build without this crate.
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
