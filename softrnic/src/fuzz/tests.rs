//! Runs each input of the corpus once.

mod corpus;
mod seeds;

use std::path::Path;

use self::corpus::Target;

const TARGETS: [(&str, Target); 8] = [
    ("handshake", super::handshake),
    ("session", super::session),
    ("messages", super::messages),
    ("connections", super::connections),
    ("names", super::names),
    ("devices", super::devices),
    ("roce_packets", super::roce_packets),
    ("roce_messages", super::roce_messages),
];

#[test]
#[cfg_attr(miri, ignore = "reads files and opens sockets")]
fn corpus_results_match_their_names() {
    // The published crate does not contain the corpus, which exists only in the repository.
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md").exists() {
        return println!("DID NOT RUN: this is not the repository");
    }
    corpus::replay(&TARGETS);
}

#[test]
#[ignore = "rewrites the corpus, after a change of its format"]
fn write_corpus() {
    corpus::write(&TARGETS, seeds::all());
}
