//! The address of a queue pair, as it travels.

use std::fmt;
use std::net::Ipv6Addr;

use sideway::ibverbs::address::Gid;

/// Where a queue pair is, and the number of the first packet that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The LID of the port; 0 on Ethernet.
    pub lid: u16,
    /// The number of the queue pair, 24 bits.
    pub qp_num: u32,
    /// The first packet sequence number that this side sends, 24 bits.
    pub psn: u32,
    /// The GID of the port; zero for none.
    pub gid: Gid,
}

impl Address {
    /// Bytes of the message, the closing zero included.
    pub const LEN: usize = 52;

    /// `LLLL:QQQQQQ:PPPPPP:` and the GID as 32 hexadecimal digits, closed by a zero byte.
    pub fn encode(&self) -> Vec<u8> {
        let Self { lid, qp_num, psn, gid } = self;
        let gid = u128::from_be_bytes(gid.raw);
        format!("{lid:04x}:{qp_num:06x}:{psn:06x}:{gid:032x}\0").into_bytes()
    }

    /// Reads the message.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn decode(message: &[u8; Self::LEN]) -> Result<Self, ParseAddressError> {
        let parse = || {
            let text = std::str::from_utf8(message).ok()?.strip_suffix('\0')?;
            let mut fields = text.split(':');
            let mut field = |digits: usize| {
                let field = fields.next()?;
                // `from_str_radix` would take a sign as well.
                let is_hex = field.len() == digits && field.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_hex.then(|| u128::from_str_radix(field, 16).ok()).flatten()
            };
            let lid = u16::try_from(field(4)?).ok()?;
            let qp_num = u32::try_from(field(6)?).ok()?;
            let psn = u32::try_from(field(6)?).ok()?;
            let gid = Gid { raw: field(32)?.to_be_bytes() };
            fields.next().is_none().then_some(Self { lid, qp_num, psn, gid })
        };
        parse().ok_or_else(|| ParseAddressError { text: message.escape_ascii().to_string() })
    }
}

/// As the C program prints it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lid, qp_num, psn, gid } = self;
        write!(f, "LID {lid:#06x}, QPN {qp_num:#08x}, PSN {psn:#08x}, GID {}", Ipv6Addr::from(*gid))
    }
}

/// What came is no address of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseAddressError {
    text: String,
}

impl fmt::Display for ParseAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not the address of a queue pair: is the other program a ping-pong as this one?", self.text)
    }
}

impl std::error::Error for ParseAddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8; Address::LEN] = b"00a1:00fe01:c0ffee:00000000000000000000ffff0a470001\0";

    fn address() -> Address {
        let gid = "::ffff:10.71.0.1".parse().unwrap();
        Address { lid: 0xa1, qp_num: 0xfe01, psn: 0xc0ffee, gid }
    }

    #[test]
    fn the_message_is_that_of_the_c_program() {
        assert_eq!(address().encode(), MESSAGE);
        assert_eq!(Address::decode(MESSAGE), Ok(address()));
        let upper = MESSAGE.to_ascii_uppercase().try_into().unwrap();
        assert_eq!(Address::decode(&upper), Ok(address()));
        assert_eq!(address().to_string(), "LID 0x00a1, QPN 0x00fe01, PSN 0xc0ffee, GID ::ffff:10.71.0.1");
    }

    #[test]
    fn what_is_no_message_is_shown() {
        let spoil = |at: usize, byte: u8| {
            let mut message = *MESSAGE;
            message[at] = byte;
            Address::decode(&message).unwrap_err().to_string()
        };
        for (at, byte) in [(0, b'g'), (0, b'+'), (3, b':'), (4, b'0'), (11, b' '), (20, 0xff), (50, b':'), (51, b'0')] {
            assert!(spoil(at, byte).contains("is not the address of a queue pair"), "{at}");
        }
        assert!(Address::decode(&[b'0'; 52]).is_err());
        assert!(Address::decode(&[0; 52]).is_err());
        assert!(Address::decode(&[0xff; 52]).is_err());
    }
}
