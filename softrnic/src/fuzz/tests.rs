//! The inputs that are kept, run once each.

mod corpus;
mod seeds;

use std::path::Path;

use self::corpus::Target;

const TARGETS: [(&str, Target); 6] = [
    ("greeting", super::greeting),
    ("session", super::session),
    ("messages", super::messages),
    ("connections", super::connections),
    ("names", super::names),
    ("devices", super::devices),
];

#[test]
#[cfg_attr(miri, ignore = "reads files, and makes sockets")]
fn what_is_kept_comes_out_as_its_name_says() {
    // A crate that was taken from a registry has no repository around it.
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md").exists() {
        return println!("DID NOT RUN: this is not the repository");
    }
    corpus::replay(&TARGETS);
}

#[test]
#[ignore = "writes the inputs that are kept: for who changes what they consist of"]
fn write_what_is_kept() {
    corpus::write(&TARGETS, seeds::all());
}
