//! Simulates both state machines. A seed determines the sizes of files, the answers and the faults. Compares the sink's
//! contents with the source's.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::channel::BLOCK;

/// The content of a block, in which the file, the offset and the length stand for the bytes.
#[derive(Clone, Debug)]
enum Sent {
    List(Id, Vec<Entry>, bool),
    Pack(Vec<(Id, u32)>),
    Sums(Id, Vec<Sum>),
    Block(Id, u64, usize),
    Close(Id),
}

/// Runs a transfer in which `fault` loses, repeats or swaps one message. Returns whether the sink accepted the whole
/// transfer.
fn run(seed: u64, fault: bool) -> bool {
    let random = &mut Rng::with_seed(seed);
    let asks = random.u64(..2) == 0;
    let (mut source, mut sink) = (Source::new(asks), Sink::new(asks));
    let mut messages = Vec::new();
    let mut directories = vec![ROOT];
    let mut sizes = BTreeMap::new();
    for list in 0..1 + random.u64(..6) {
        let at = random.usize(..directories.len());
        let dir = directories[at];
        let entries: Vec<Entry> = (0..random.u64(..20))
            .map(|number| {
                let size = match random.u64(..4) {
                    0 => 0,
                    1 => random.u64(..SMALL),
                    2 => SMALL + random.u64(..5),
                    _ => random.u64(..3 * BLOCK as u64),
                };
                let kind = match random.u64(..5) {
                    0 => EntryKind::Directory,
                    _ => EntryKind::File { size, has_links: false, sum: None },
                };
                let name = format!("{list}-{number}").into_bytes();
                Entry { name, kind, mode: 0o600, owner: (0, 0), modified: (0, 0), attributes: Vec::new() }
            })
            .collect();
        let first = source.list(&entries);
        for (id, entry) in (first..).zip(&entries) {
            match entry.kind {
                EntryKind::Directory => directories.push(id),
                EntryKind::File { size, .. } => _ = sizes.insert(id, size),
                _ => {}
            }
        }
        messages.push(Sent::List(dir, entries, false));
    }
    source.listed();
    // The sink already has random parts of the files for which the source asks.
    let asked: Vec<Id> = sizes.iter().filter(|(_, size)| source::is_asked(asks, **size)).map(|(id, _)| *id).collect();
    let answers: Vec<(Id, Have)> = asked
        .iter()
        .map(|id| match random.u64(..4) {
            0 => (*id, Have::All),
            1 => (*id, Have::Check(random.u64(..sizes[id] + 1))),
            _ => (*id, Have::Until(0)),
        })
        .collect();
    let mut held: BTreeMap<Id, u64> =
        answers.iter().map(|(id, have)| (*id, if *have == Have::All { sizes[id] } else { 0 })).collect();
    source.have(&answers).unwrap();
    while let Some(job) = source.next_job() {
        match job {
            Job::Pack(files) => {
                source.sent(files.iter().map(|(_, length)| u64::from(*length)).sum());
                messages.push(Sent::Pack(files));
            }
            Job::Check { id, until } => {
                let blocks =
                    (0..until).step_by(BLOCK).map(|offset| (offset, (until - offset).min(BLOCK as u64) as u32));
                messages.push(Sent::Sums(id, blocks.map(|(offset, length)| Sum { offset, length, hash: 0 }).collect()));
                // A part of these bytes is equal. The sink may answer before the source has sent all hashes.
                let equal = random.u64(..until + 1);
                held.insert(id, equal);
                if random.u64(..2) == 0 {
                    source.have(&[(id, Have::Until(equal))]).unwrap();
                    assert!(!source.is_checking(id));
                    source.checked(id);
                } else {
                    assert!(source.is_checking(id));
                    source.checked(id);
                    source.have(&[(id, Have::Until(equal))]).unwrap();
                }
            }
            Job::File { id, size, mut from } => {
                while from < size {
                    let length = (size - from).min(BLOCK as u64);
                    messages.push(Sent::Block(id, from, length as usize));
                    source.sent(length);
                    from += length;
                }
                messages.push(Sent::Close(id));
            }
        }
    }
    assert_eq!(source.waiting(), 0);
    if fault {
        let at = random.usize(..messages.len());
        match random.u64(..3) {
            0 => _ = messages.remove(at),
            1 => messages.insert(at, messages[at].clone()),
            _ => {
                let last = messages.len() - 1;
                messages.swap(at, last);
            }
        }
    }
    let mut answers = answers.into_iter();
    for message in &messages {
        let accepted = match message {
            Sent::List(dir, entries, whole) => sink.list(*dir, entries, *whole).map(|first| {
                for id in (first..).take(entries.len()) {
                    if sink.is_asked(id)
                        && let Some((_, have)) = answers.next()
                    {
                        sink.answer(id, have);
                    }
                }
            }),
            Sent::Pack(files) => {
                let length: u64 = files.iter().map(|(_, length)| u64::from(*length)).sum();
                sink.pack(files, length as usize)
                    .map(|_| files.iter().for_each(|(id, length)| _ = held.insert(*id, u64::from(*length))))
            }
            Sent::Sums(id, sums) => sink.sums(*id, sums).map(drop).map(|()| sink.answer(*id, Have::Until(held[id]))),
            Sent::Block(id, offset, length) => sink.block(*id, *offset, *length).map(|_| {
                let had = held.get(id).copied().unwrap_or_default();
                if had == *offset {
                    held.insert(*id, offset + *length as u64);
                }
            }),
            Sent::Close(id) => sink.close(*id).map(drop),
        };
        if accepted.is_err() {
            return false;
        }
    }
    let accepted = sink.end(&source.totals()).is_ok();
    if accepted {
        assert_eq!(held, sizes, "seed {seed}: the sink accepted other data than was sent");
    }
    accepted
}

#[test]
fn transfers_without_faults_arrive_whole() {
    for seed in 0..2_000 {
        assert!(run(seed, false), "seed {seed}");
    }
}

#[test]
fn lost_repeated_and_swapped_messages_never_pass_for_whole_ones() {
    let refused = (0..2_000).filter(|&seed| !run(seed, true)).count();
    // Some faults change nothing: swapping the last message with itself, or repeating an empty list.
    assert!(refused > 1_000, "{refused}");
}
