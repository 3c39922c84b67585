//! The metadata of a call: a sequence of entries, each with a tag, a length and a value.

use std::fmt;

/// Maximum length of metadata in bytes.
pub const META_LIMIT: usize = 8 << 10;

/// The tag of a key and a value that the program has set. The entry contains the length of the key in one byte, the
/// key, and the value.
const ENTRY: u16 = 1;
/// The tag of the trace context of the call: the trace in 16 bytes, the span in 8 bytes, and the flags in 1 byte.
const TRACE: u16 = 2;

/// The metadata of a call: keys and values.
///
/// Its bytes are a sequence of entries: tag, 2 bytes; length, 2 bytes; value. Entries with unknown tags are skipped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    bytes: Vec<u8>,
}

impl Metadata {
    /// Creates metadata without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses metadata; stops at the first bytes that are not an entry.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut whole = Self::default();
        entries(bytes).for_each(|(tag, value)| whole.push(tag, &[value]));
        whole
    }

    /// Adds an entry. Returns whether it fits: a key has at most 255 bytes, all entries together [`META_LIMIT`].
    #[must_use]
    pub fn insert(&mut self, key: &str, value: &[u8]) -> bool {
        let fits = key.len() < 256 && self.bytes.len() + 5 + key.len() + value.len() <= META_LIMIT;
        if fits {
            self.push(ENTRY, &[&[key.len() as u8], key.as_bytes(), value]);
        }
        fits
    }

    /// Returns the value of a key. If the key has several values, returns the last one.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.iter().filter(|(found, _)| *found == key).last().map(|(_, value)| value)
    }

    /// Iterates over keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        entries(&self.bytes).filter(|(tag, _)| *tag == ENTRY).filter_map(|(_, value)| {
            let (&length, rest) = value.split_first()?;
            let (key, value) = rest.split_at_checked(usize::from(length))?;
            Some((std::str::from_utf8(key).ok()?, value))
        })
    }

    /// Returns the trace context: trace, span and flags, as in the W3C's `traceparent`.
    pub fn trace(&self) -> Option<&[u8; 25]> {
        entries(&self.bytes).find(|(tag, _)| *tag == TRACE).and_then(|(_, value)| value.try_into().ok())
    }

    /// Sets the trace context, unless one is set already.
    pub fn set_trace(&mut self, trace: &[u8; 25]) {
        if self.trace().is_none() && self.bytes.len() + 29 <= META_LIMIT {
            self.push(TRACE, &[trace]);
        }
    }

    /// Returns the encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push(&mut self, tag: u16, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.extend_from_slice(&tag.to_le_bytes());
        self.bytes.extend_from_slice(&(length as u16).to_le_bytes());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prints only the keys, because values may be secrets.
        f.debug_list().entries(self.iter().map(|(key, _)| key)).finish()
    }
}

fn entries(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let length = u16::from_le_bytes([head[2], head[3]]);
        let (value, rest) = rest.split_at_checked(usize::from(length))?;
        bytes = rest;
        Some((u16::from_le_bytes([head[0], head[1]]), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_and_unknown_tags_are_skipped() {
        let mut meta = Metadata::new();
        meta.push(99, &[b"of a later version"]);
        assert!(meta.insert("user", b"ann") && meta.insert("user", b"bob"));
        meta.set_trace(&[7; 25]);
        let again = Metadata::from_bytes(meta.as_bytes());
        assert_eq!((again.get("user"), again.get("none")), (Some(&b"bob"[..]), None));
        assert_eq!(again.trace(), Some(&[7; 25]));
        assert!(!meta.insert("large", &[0; META_LIMIT]));
        assert_eq!(Metadata::from_bytes(&meta.as_bytes()[..30]).iter().count(), 0);
    }
}
