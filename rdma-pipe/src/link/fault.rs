//! Faults that tests inject.

use trespass::Buf;

/// A fault that a test injects into a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Inverts a bit of the payload of a block.
    Flip(u64),
    /// Drops a block.
    Drop(u64),
    /// Swaps a block with its successor.
    Swap(u64),
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let (kind, number) = text.split_once(':').ok_or("expected flip:N, drop:N or swap:N")?;
        let number = number.parse().map_err(|_| "N is not a number; pass the number of a block")?;
        match kind {
            "flip" => Ok(Fault::Flip(number)),
            "drop" => Ok(Fault::Drop(number)),
            "swap" => Ok(Fault::Swap(number)),
            _ => Err("expected flip:N, drop:N or swap:N".to_owned()),
        }
    }
}

/// Injects a fault into the blocks of a connection.
#[derive(Debug)]
pub(super) struct Faults {
    fault: Fault,
    blocks: u64,
    held: Option<Buf>,
}

impl Faults {
    pub(super) fn new(fault: Fault) -> Faults {
        Faults { fault, blocks: 0, held: None }
    }

    /// Returns the blocks to send in place of the next block, in order.
    pub(super) fn inject(&mut self, mut block: Buf, payload: usize) -> impl Iterator<Item = Buf> + use<> {
        let number = self.blocks;
        self.blocks += 1;
        let blocks = match self.fault {
            Fault::Drop(at) if at == number => [None, None],
            Fault::Swap(at) if at == number => {
                self.held = Some(block);
                [None, None]
            }
            fault => {
                if fault == Fault::Flip(number) && payload != 0 {
                    block[payload / 2] ^= 0x10;
                }
                [Some(block), self.held.take()]
            }
        };
        blocks.into_iter().flatten()
    }
}
