//! A device or pipe as the destination.

use std::path::Path;

use super::rest::Rest;
use crate::copy::options::CopyOptions;
use crate::copy::progress::Progress;
use crate::error::{Error, Result};
use crate::link::{Link, Received, verify};
use crate::proto::{Entry, EntryKind, Frame, Have, Id, Sink, Totals};

/// Receives one file, and writes it to a device or pipe.
pub(super) fn to_device(
    link: &mut Link,
    (device, path): (&std::fs::File, &Path),
    options: &CopyOptions,
    progress: &Progress,
) -> Result<(Totals, Option<Rest>)> {
    use std::io::Write;
    // A hole of the file. A device may contain other data there, and a pipe has no holes.
    let fill = |length: u64| {
        let mut zeros = std::io::Read::take(std::io::repeat(0), length);
        std::io::copy(&mut zeros, &mut &*device).map_err(|error| Error::file("write", path, &error))
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
                    None => sink.block(block.file, block.offset, payload.len())?,
                }
                verify(&block, &payload)?;
                fill(block.offset.saturating_sub(position))?;
                (&*device).write_all(&payload).map_err(|error| Error::file("write", path, &error))?;
                position = block.offset + payload.len() as u64;
                progress.bytes(payload.len() as u64);
            }
            Received::Frame(Frame::List { dir, entries, whole }) => {
                let first = sink.list(dir, &entries, whole)?;
                match entries.as_slice() {
                    [Entry { kind: EntryKind::File { size: listed, .. }, .. }] if first == 1 => size = *listed,
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
                return Ok((Totals { failed: totals.failed, ..sink.totals() }, None));
            }
            Received::Frame(_) => return Err(Error::protocol("the sender sent an unexpected frame")),
        }
    }
}
