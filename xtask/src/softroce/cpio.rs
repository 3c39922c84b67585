//! Writes a `cpio` archive in the "newc" format, which the kernel unpacks into its first root.
//!
//! See `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel.

/// An archive under construction.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    /// Adds a folder; its parent must have been added before.
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, 2, &[]);
    }

    /// Adds a file that all users may read and run.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, 1, content);
    }

    /// Closes the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, 1, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, links: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("a file of an initial RAM disk is smaller than 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a name is short");
        // inode, mode, user, group, links, time, size, device (major, minor), device of a node (major, minor), name size, checksum
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Names and contents each end on a multiple of four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_the_trailer_is_last() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/x", b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"07070100000001000041ed"));
        // 110 bytes of header, "bin" and its zero, padded to 116; then the second entry, whose content follows its name.
        assert_eq!(&bytes[116..122], b"070701");
        assert_eq!(&bytes[116 + 110..116 + 116], b"bin/x\0");
        assert_eq!(&bytes[232..237], b"12345");
        assert!(bytes.windows(TRAILER.len()).any(|window| window == TRAILER.as_bytes()));
    }
}
