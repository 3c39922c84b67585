//! The codes of errors, which the Terminate message carries (RFC 5040, section 4.8).

use std::fmt;

/// The layer (4 bits), the type (4 bits) and the code (8 bits) of an error. The peer may send any value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(super) u16);

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $(pub(super) const $name: Self = Self($value);)*
        }

        impl fmt::Debug for Code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($value => f.write_str($text),)*
                    unknown => write!(f, "unknown error {unknown:#06x}"),
                }
            }
        }
    };
}

codes! {
    READ_STAG = 0x0100, "RDMAP: invalid STag";
    READ_BOUNDS = 0x0101, "RDMAP: base or bounds";
    ACCESS = 0x0102, "RDMAP: access rights";
    READ_DOMAIN = 0x0103, "RDMAP: STag of another stream";
    INVALIDATION = 0x0109, "RDMAP: STag cannot be invalidated";
    RDMAP_VERSION = 0x0205, "RDMAP: invalid version";
    OPCODE = 0x0206, "RDMAP: unexpected opcode";
    UNSPECIFIED = 0x02ff, "RDMAP: unspecified error";
    TAGGED_STAG = 0x1100, "DDP: invalid STag";
    TAGGED_BOUNDS = 0x1101, "DDP: bounds of the tagged buffer";
    TAGGED_DOMAIN = 0x1102, "DDP: STag of another stream";
    TAGGED_WRAP = 0x1103, "DDP: wrap of the tagged offset";
    TAGGED_VERSION = 0x1104, "DDP: invalid version of a tagged segment";
    QUEUE = 0x1201, "DDP: invalid queue number";
    NO_BUFFER = 0x1202, "DDP: no buffer available";
    MSN = 0x1203, "DDP: MSN out of range";
    OFFSET = 0x1204, "DDP: invalid message offset";
    TOO_LONG = 0x1205, "DDP: message too long for its buffer";
    UNTAGGED_VERSION = 0x1206, "DDP: invalid version of an untagged segment";
    CRC = 0x2002, "MPA: CRC error";
    FRAME = 0x2003, "MPA: invalid frame";
    IRD = 0x2006, "MPA: insufficient IRD";
    RTR = 0x2007, "MPA: no matching RTR";
}
