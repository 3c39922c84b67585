//! Blocks of QP numbers. A process owns a block while it listens at the block's socket name.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use rustix::io::Errno;

use super::socket;
use crate::sys::descriptor::Descriptor;

/// The number of the last block; the first one is 1. The block after the last one would contain the QP number of
/// multicast datagrams.
const BLOCKS: u32 = 4094;
/// [`claim`] gives up if this many consecutive blocks are in use.
const TRIES: u32 = 256;
/// The backlog of the listener of a block.
const BACKLOG: i32 = 512;

/// Returns the socket name of the listener of a block.
pub(super) fn name(block: u32) -> String {
    format!("softrnic/1/{block:x}")
}

/// Claims an unused block, and returns it with its listener.
///
/// # Errors
///
/// Returns an error if all blocks that were tried are in use, or if the kernel reports an error.
pub(super) fn claim() -> Result<(u32, Descriptor), Errno> {
    // The first block is random, so that a QP number of an earlier run is probably not in use. The conversion is
    // lossless, because the value is less than the number of blocks.
    let start = (RandomState::new().hash_one(0) % u64::from(BLOCKS)) as u32;
    for offset in 0..TRIES {
        let block = (start + offset) % BLOCKS + 1;
        if let Some(listener) = listen(block)? {
            return Ok((block, listener));
        }
    }
    Err(Errno::ADDRINUSE)
}

/// Opens the listener of a block. Returns `None` if another process owns the block.
pub(super) fn listen(block: u32) -> Result<Option<Descriptor>, Errno> {
    let listener = socket::new()?;
    match rustix::net::bind(&listener, &socket::address(&name(block))?) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => return Ok(None),
        Err(error) => return Err(error),
    }
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(Some(listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "opens sockets")]
    fn block_has_one_owner_until_its_listener_closes() {
        let (first, listener) = claim().unwrap();
        let (second, _other) = claim().unwrap();
        assert_ne!(first, second);
        for block in [first, second] {
            assert!((1..=BLOCKS).contains(&block));
            assert!(listen(block).unwrap().is_none());
        }
        drop(listener);
        assert!(listen(first).unwrap().is_some());
    }
}
