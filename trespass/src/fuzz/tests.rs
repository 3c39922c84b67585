//! Runs the entry points with random malformed input, and with the corpus.

use std::path::Path;

use super::*;

#[path = "../../../softrnic/src/fuzz/tests/corpus.rs"]
mod corpus;

const TARGETS: [(&str, corpus::Target); 2] = [("frames", frames), ("hello", handshake)];

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn corpus_results_match_their_names() {
    // If the crate comes from a registry, there is no corpus.
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md").exists() {
        return println!("DID NOT RUN: the corpus exists only in the repository");
    }
    corpus::replay(&TARGETS);
}

#[test]
#[ignore = "rewrites the corpus; run it after a change of the wire format"]
fn write_corpus() {
    let frame = |kind: u8, flags: u8, length: u8, a: u8, payload: &[u8]| {
        let mut bytes = vec![kind, flags, 5, 0, length, 0, 0, 0, a, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(payload);
        bytes
    };
    let offer = |length: u8| frame(10, 0, 16, 0, &[1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, length, 0, 0, 0]);
    let part = |flags: u8| [frame(1, flags, 200, 144, b""), vec![1; 200]].concat();
    let send = |frames: &[Vec<u8>]| [&[0, frames.concat().len() as u8][..], &frames.concat()].concat();
    let message = || frame(1, 1, 3, 3, b"abc");
    let hello = Hello { segment: 4096, credits: FLOOR, ..Hello::new(7) }.emit();
    let mut newer = hello;
    newer[4..6].fill(9);
    let inputs = vec![
        ("frames/good-message-received", [send(&[message()]), vec![5, 0]].concat()),
        (
            "frames/good-two-in-one-send-read",
            [send(&[message(), message()]), vec![4, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat(),
        ),
        ("frames/good-end-and-close", [send(&[message(), frame(6, 0, 0, 0, b"")]), vec![5, 0, 7, 1, 1]].concat()),
        ("frames/good-optional-kind", send(&[frame(99, 0x80, 0, 0, b"")])),
        ("frames/bad-kind", send(&[frame(99, 0, 0, 0, b"")])),
        ("frames/bad-cut-short", send(&[frame(1, 1, 9, 9, b"abc")])),
        ("frames/bad-message-after-the-end", send(&[frame(6, 0, 0, 0, b""), message()])),
        ("frames/bad-more-done-than-sent", send(&[frame(3, 0, 0, 1, b"")])),
        ("frames/good-buffer-announced-and-withdrawn", send(&[offer(9), frame(12, 0, 0, 1, b"")])),
        (
            "frames/good-message-written",
            [send(&[part(0)]), send(&[part(1)]), send(&[frame(11, 1, 0, 200, b"")]), vec![5, 0]].concat(),
        ),
        ("frames/bad-buffer-without-length", send(&[offer(0)])),
        ("frames/bad-message-written-nowhere", send(&[frame(11, 1, 0, 200, b"")])),
        ("frames/bad-buffers-returned-unasked", send(&[frame(13, 0, 0, 0, b"")])),
        ("frames/bad-withdrawal-of-too-many-buffers", send(&[offer(9), frame(12, 0, 0, 2, b"")])),
        ("hello/good-hello", hello.to_vec()),
        ("hello/bad-version", newer.to_vec()),
        ("hello/bad-short", hello[..20].to_vec()),
    ];
    corpus::write(&TARGETS, inputs);
}

/// Generates an input that looks like frames, from a seed.
fn input(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |end: u64| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % end
    };
    let mut bytes = Vec::new();
    for _ in 0..30 {
        let operation = next(8) as u8;
        let mut frames = Vec::new();
        for _ in 0..=next(2) {
            let payload = next(30) as usize;
            let length = if next(10) == 0 { next(200) } else { payload as u64 };
            frames.extend([next(15) as u8, next(2) as u8, next(20) as u8, 0, length as u8, 0, 0, 0]);
            frames.extend([next(4) as u8 * 20, next(2) as u8, 0, 0, next(20) as u8, 0, 0, 0]);
            frames.extend((0..payload).map(|_| 7));
        }
        bytes.extend([operation, frames.len() as u8]);
        bytes.extend(frames);
    }
    bytes
}

#[test]
fn malformed_frames_end_the_connection_and_keep_the_receives() {
    let well = (0..20_000).filter(|&seed| frames(&input(seed))).count();
    assert!(well < 20_000, "no input is malformed");
}

#[test]
fn malformed_handshakes_are_refused() {
    handshake(b"trsp");
    for seed in 0..2_000 {
        let mut bytes = Hello::new(seed).emit().to_vec();
        bytes[4..].iter_mut().zip(input(seed)).for_each(|(byte, other)| *byte ^= other);
        handshake(&bytes);
    }
}
