//! A device or pipe as the destination.

use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

use crate::copy::target::{Inside, Target};
use crate::copy::writer::Writers;
use crate::error::{Error, Result};
use crate::link::{Link, Received, verify};
use crate::proto::{Entry, EntryKind, Frame, Have, Id, Sink, Totals};
use crate::tree::open_special;

/// Receives one file, and writes it to a device or pipe. A special file or a link takes its place.
pub(super) fn to_device(link: &mut Link, file: &OnceLock<File>, path: &Path, writers: &Writers<'_>) -> Result<Totals> {
    use std::io::Write;
    let (options, progress) = (writers.options, writers.progress);
    // Such a name leads to a file of the starter, which must not be replaced.
    let is_own_stream = file.get().is_some();
    let write_error = |error: &std::io::Error| Error::file("write", path, error);
    let device = || file.get().ok_or_else(|| Error::protocol("the sender sent bytes before their file"));
    // A hole of the file. A device may contain other data there, and a pipe has no holes.
    let fill = |length: u64| {
        let mut zeros = std::io::Read::take(std::io::repeat(0), length);
        std::io::copy(&mut zeros, &mut device()?).map_err(|error| write_error(&error))
    };
    let mut sink = Sink::new(options.asks());
    let mut pack = None;
    let (mut size, mut position) = (0, 0);
    loop {
        match link.receiver.receive()? {
            Received::Block(block, payload) => {
                match pack.take() {
                    Some(list) => {
                        let list: Vec<(Id, u32)> = list;
                        sink.pack(&list, payload.len())?;
                    }
                    None => _ = sink.block(block.file, block.offset, payload.len())?,
                }
                verify(&block, &payload)?;
                fill(block.offset.saturating_sub(position))?;
                device()?.write_all(&payload).map_err(|error| write_error(&error))?;
                position = block.offset + payload.len() as u64;
                progress.bytes(payload.len() as u64);
            }
            Received::Frame(Frame::List { dir, entries, whole }) => {
                let first = sink.list(dir, &entries, whole)?;
                match entries.as_slice() {
                    [Entry { kind: EntryKind::File { size: listed, .. }, .. }] if first == 1 => {
                        size = *listed;
                        if file.get().is_none() && !options.dry_run {
                            _ = file.set(File::from(open_special(path)?));
                        }
                    }
                    [entry @ Entry { kind: EntryKind::Special { .. } | EntryKind::Link(_), .. }]
                        if first == 1 && !is_own_stream =>
                    {
                        replace(path, first, entry, writers)?;
                    }
                    _ => return Err(Error::file("write a tree to", path, &std::io::Error::from_raw_os_error(20))),
                }
                if sink.is_asked(first) {
                    sink.answer(first, Have::Until(0));
                    link.sender.frame(&Frame::Have(vec![(first, Have::Until(0))]))?;
                }
            }
            Received::Frame(Frame::Top(_)) => {
                return Err(Error::file("write a tree to", path, &std::io::Error::from_raw_os_error(20)));
            }
            Received::Frame(Frame::Pack(list)) => pack = Some(list),
            Received::Frame(Frame::Close(id, result)) => {
                sink.close(id)?;
                if result.is_ok() && !options.dry_run {
                    fill(size.saturating_sub(position))?;
                    position = size;
                }
            }
            Received::Frame(Frame::End(totals)) => {
                sink.end(&totals)?;
                return Ok(Totals { failed: totals.failed, ..sink.totals() });
            }
            Received::Frame(_) => return Err(Error::protocol("the sender sent an unexpected frame")),
        }
    }
}

/// Puts a special file or a link in the place of the special file of this path.
fn replace(path: &Path, id: Id, entry: &Entry, writers: &Writers<'_>) -> Result<()> {
    let keep = writers.options.keep;
    let Target::Inside(Inside { root: folder, name: Some(name), .. }) = Target::named(path)? else { return Ok(()) };
    if writers.options.dry_run {
        return Ok(());
    }
    let entry = Entry { name: name.name, ..entry.clone() };
    let (what, made) = match &entry.kind {
        EntryKind::Special { kind, .. } if keep.specials => ("make", folder.special(&entry, *kind, keep)),
        EntryKind::Link(target) => ("link", folder.link(&entry, target, keep)),
        _ => return Ok(()),
    };
    writers.made_or_fail(id, folder.path(), &entry, what, made)?;
    if writers.options.fsync {
        writers.or_fail(id, folder.path(), &entry, "sync", folder.sync())?;
    }
    Ok(())
}
