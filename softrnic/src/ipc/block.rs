//! Blocks of numbers: who listens at the name of a block has it, until the process ends.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use rustix::io::Errno;

use super::socket;
use crate::sys::descriptor::Descriptor;

/// The blocks from 1 on; the last has the number of multicast.
const BLOCKS: u32 = 4094;
/// So many taken ones in a row are a sign that all are.
const TRIES: u32 = 256;
/// Connections that wait to be taken.
const BACKLOG: i32 = 512;

/// The name of a block's listener.
pub(super) fn name(block: u32) -> String {
    format!("softrnic/1/{block:x}")
}

/// A block that nobody had, and its listener.
///
/// # Errors
///
/// All tries were in vain; or what the kernel says.
pub(super) fn claim() -> Result<(u32, Descriptor), Errno> {
    // Chance, so that a number of an earlier run is likely nobody's. Lossless: less than the number of blocks.
    let start = (RandomState::new().hash_one(0) % u64::from(BLOCKS)) as u32;
    for offset in 0..TRIES {
        let block = (start + offset) % BLOCKS + 1;
        if let Some(listener) = listen(block)? {
            return Ok((block, listener));
        }
    }
    Err(Errno::ADDRINUSE)
}

/// Listens for this block; `None` where another has it.
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
    #[cfg_attr(miri, ignore = "makes sockets")]
    fn a_block_has_one_owner_until_it_goes() {
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
