//! What the sides say in the private data of a connection: who this is, and how much it can take in at a time.
//!
//! ```text
//! bytes 0..7    magic
//!       7       version of the stream; in a refusal `!` where the server is busy, else `?`, behind which a sentence stands
//!       8..12   bytes of a receive, big-endian, as all numbers
//!      12..14   receives that are posted
//! ```

/// First six: a name. Last one: no text.
const MAGIC: [u8; 7] = *b"STRIDE\x93";
/// The version of the stream. What frames say of versions is above it, and the same over TCP.
const VERSION: u8 = 1;
/// Stand in place of a version.
const BUSY: u8 = b'!';
const NO: u8 = b'?';
/// The most bytes of private data in a rejection.
const MOST_OF_REFUSAL: usize = 148;
/// Stands at the end of a sentence that is longer than there is room.
const CUT: &str = "…";
/// No side takes in less.
const LEAST_SIZE: u32 = 64;
const LEAST_RECEIVES: u16 = 4;

/// How much a side takes in at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hail {
    /// Bytes of each receive.
    pub(super) size: u32,
    /// Receives.
    pub(super) receives: u16,
}

/// What does not hail as a side of a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strange {
    /// Another program.
    Program,
    /// Another version of this one.
    Version(u8),
    /// One of this version that takes in too little at a time.
    Small(Hail),
}

impl Hail {
    pub(super) fn bytes(self) -> [u8; 14] {
        let mut bytes = [0; 14];
        bytes[..7].copy_from_slice(&MAGIC);
        bytes[7] = VERSION;
        bytes[8..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[12..].copy_from_slice(&self.receives.to_be_bytes());
        bytes
    }

    /// Zeros may follow what was sent.
    pub(super) fn read(data: &[u8]) -> Result<Self, Strange> {
        let Some([rest @ .., s0, s1, s2, s3, r0, r1]) = data.first_chunk::<14>() else { return Err(Strange::Program) };
        let Some(version) = rest.strip_prefix(&MAGIC).and_then(<[u8]>::first) else { return Err(Strange::Program) };
        let hail = Self { size: u32::from_be_bytes([*s0, *s1, *s2, *s3]), receives: u16::from_be_bytes([*r0, *r1]) };
        match *version {
            VERSION if hail.size < LEAST_SIZE || hail.receives < LEAST_RECEIVES => Err(Strange::Small(hail)),
            VERSION => Ok(hail),
            other => Err(Strange::Version(other)),
        }
    }
}

impl Strange {
    /// What the other side is.
    pub(super) fn what(self) -> String {
        match self {
            Self::Program => "no stride-perf: is the port the right one?".to_owned(),
            Self::Version(version) => format!(
                "a stride-perf whose messages over rdma_cm are of version {version}, and here they are of {VERSION}: use the same on both"
            ),
            Self::Small(Hail { size, receives }) => format!(
                "a stride-perf that takes in {receives} messages of {size} bytes at a time over rdma_cm, and {LEAST_RECEIVES} of {LEAST_SIZE} \
                 are the least: its device has too little for -z"
            ),
        }
    }

    /// What the other side is told, in few words.
    pub(super) fn refusal(self) -> String {
        match self {
            Self::Program => "this is stride-perf, and who connects is not".to_owned(),
            Self::Version(version) => format!(
                "its messages over rdma_cm are of version {VERSION}, and those of the client of {version}: use the same stride-perf on both"
            ),
            Self::Small(Hail { size, receives }) => {
                format!(
                    "a client takes in {LEAST_RECEIVES} messages of {LEAST_SIZE} bytes at the least, and not {receives} of {size}"
                )
            }
        }
    }
}

/// Why a server does not connect with who comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has too much to do.
    Busy(String),
    /// It cannot, or will not.
    No(String),
}

impl Refusal {
    /// The private data of the rejection.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (kind, text) = match self {
            Self::Busy(text) => (BUSY, text),
            Self::No(text) => (NO, text),
        };
        let mut all = [&MAGIC[..], &[kind]].concat();
        let room = MOST_OF_REFUSAL - all.len();
        if text.len() <= room {
            all.extend(text.as_bytes());
            return all;
        }
        // Cut between letters, and said to be.
        let end = (0..=room - CUT.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        all.extend(text.as_bytes().iter().take(end).chain(CUT.as_bytes()));
        all
    }

    /// What a rejection says; none where it is of another program.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let (kind, text) = data.strip_prefix(&MAGIC)?.split_first()?;
        let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
        match *kind {
            BUSY => Some(Self::Busy(text)),
            NO => Some(Self::No(text)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_other_bytes_hail(data in prop::collection::vec(any::<u8>(), 0..56), place in 0..8_usize, by in 1..=255_u8) {
            prop_assert_eq!(Hail::read(&data), Err(Strange::Program));
            prop_assert_eq!(Refusal::read(&data), None);
            let mut data = [&Hail { size: 4096, receives: 16 }.bytes()[..], &data].concat();
            prop_assert_eq!(Hail::read(&data), Ok(Hail { size: 4096, receives: 16 }));
            data[place] ^= by;
            prop_assert!(Hail::read(&data).is_err());
        }
    }

    #[test]
    fn who_can_take_in_too_little_and_who_is_of_another_version_are_told_apart() {
        for (size, receives) in [(0, 16), (63, 16), (4096, 3), (4096, 0)] {
            let hail = Hail { size, receives };
            let strange = Hail::read(&hail.bytes()).unwrap_err();
            assert_eq!(strange, Strange::Small(hail));
            let said = [strange.what(), strange.refusal()];
            assert!(
                said.iter().all(|text| !text.contains("version") && text.contains(&receives.to_string())),
                "{said:?}"
            );
        }
        assert_eq!(Hail::read(&Hail { size: 4096, receives: 16 }.bytes()[..13]), Err(Strange::Program));
        let mut newer = Hail { size: 4096, receives: 16 }.bytes();
        newer[7] = 9;
        let strange = Hail::read(&newer).unwrap_err();
        assert!(
            strange.what().contains("are of version 9, and here they are of 1: use the same"),
            "{}",
            strange.what()
        );
        let told = strange.refusal();
        assert!(told.contains("of version 1, and those of the client of 9") && told.len() <= 140, "{told}");
    }

    #[test]
    fn a_refusal_has_a_sentence_that_fits() {
        let said = |text: &str| {
            let data = Refusal::Busy(text.to_owned()).bytes();
            assert!(data.len() <= MOST_OF_REFUSAL);
            match Refusal::read(&[&data[..], &[0; 9]].concat()) {
                Some(Refusal::Busy(text)) => text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(said("busy"), "busy");
        assert_eq!(said(&"x".repeat(140)), "x".repeat(140));
        assert_eq!(said(&"x".repeat(500)), format!("{}…", "x".repeat(137)));
        assert_eq!(said(&format!("{}ééé", "x".repeat(136))), format!("{}…", "x".repeat(136)));
        let no = Refusal::No("a sentence that is long".to_owned());
        assert!(Hail::read(&no.bytes()).is_err());
        assert_eq!(Refusal::read(&no.bytes()), Some(no));
        assert_eq!(Refusal::read(&Hail { size: 4096, receives: 16 }.bytes()), None);
    }
}
