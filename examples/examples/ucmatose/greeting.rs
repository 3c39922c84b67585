//! What two of this program tell each other along with the connection: rdma-core's program says nothing.

/// With what a greeting begins.
const NAME: &[u8; 16] = b"sideway ucmatose";

/// The private data of a request and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Which connection of the client's it is.
    pub(crate) number: u32,
    pub(crate) messages: u32,
    pub(crate) size: u32,
}

impl Greeting {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let numbers = [self.number, self.messages, self.size];
        NAME.iter().copied().chain(numbers.into_iter().flat_map(u32::to_be_bytes)).collect()
    }

    /// The greeting, if it is one. Behind it stands whatever the transport puts there.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(NAME)?;
        let number = |at: usize| Some(u32::from_be_bytes(*rest.get(at * 4..)?.first_chunk()?));
        Some(Self { number: number(0)?, messages: number(1)?, size: number(2)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_with_what_stands_behind_it_and_nothing_else_is_one() {
        let greeting = Greeting { number: 7, messages: 10, size: 0x01_00_00_00 };
        let mut bytes = greeting.to_bytes();
        assert_eq!(bytes.len(), 28);
        assert_eq!(Greeting::read(&bytes), Some(greeting));
        bytes.resize(56, 0);
        assert_eq!(Greeting::read(&bytes), Some(greeting));
        for wrong in [&bytes[..27], &bytes[1..], &[0; 56], &[]] {
            assert_eq!(Greeting::read(wrong), None);
        }
    }
}
