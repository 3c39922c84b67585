//! The inputs that are kept, run once each.

// One way to run and write them, for both crates: it lies in the one that is published, whose tests are to build on their own.
#[path = "../../../../softrnic/src/fuzz/tests/corpus.rs"]
mod corpus;
mod seeds;

use self::corpus::Target;

const TARGETS: [(&str, Target); 3] =
    [("conversation", super::conversation), ("results", super::results), ("command_line", super::command_line)];

#[test]
fn what_is_kept_comes_out_as_its_name_says() {
    corpus::replay(&TARGETS);
}

#[test]
#[ignore = "writes the inputs that are kept: for who changes what they consist of"]
fn write_what_is_kept() {
    corpus::write(&TARGETS, seeds::all());
}
