//! Unpacks a kernel image, so that QEMU starts the kernel itself and not its decompressor.
//!
//! Under TCG the decompressor of an xz image takes 2 of the 5 seconds of a boot. See `Documentation/arch/x86/boot.rst`
//! of the kernel for the header and for the "PVH" entry, which QEMU needs to start an ELF file.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::packages;

/// Offset of the number of 512-byte sectors of the real-mode part, less one.
const SETUP_SECTORS: usize = 0x1f1;
/// Offset of the magic word of the header.
const MAGIC: usize = 0x202;
/// Offset of the position of the compressed kernel, relative to the end of the real-mode part, and of its length.
const PAYLOAD: usize = 0x248;

/// The ELF kernel in a `bzImage`; `None` if QEMU must use the image itself.
///
/// `None` means another format, a compression for which the host has no program, or a kernel without a PVH entry.
pub(crate) fn unpack(image: &[u8]) -> Option<Vec<u8>> {
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let word = |offset: usize| -> Option<usize> {
        let bytes = image.get(offset..offset + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    // For compatibility, zero in the header means four.
    let sectors = match *image.get(SETUP_SECTORS)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + word(PAYLOAD)?;
    let payload = image.get(start..start + word(PAYLOAD + 4)?)?;
    // For xz and zstd the kernel's build appends the unpacked size, four bytes after the stream.
    let (program, stream) = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => ("xz", &payload[..payload.len() - 4]),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", &payload[..payload.len() - 4]),
        [0x1f, 0x8b, ..] => ("gzip", payload),
        _ => return None,
    };
    let kernel = decompress(program, stream)?;
    (kernel.starts_with(b"\x7fELF") && has_pvh_entry(&kernel)).then_some(kernel)
}

fn decompress(program: &str, stream: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new(packages::find_program(program)?)
        .args(["-q", "-dc"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A failure shows in the program's exit status.
            let _ = input.write_all(stream);
        });
        child.wait_with_output()
    });
    output.ok().filter(|output| output.status.success()).map(|output| output.stdout)
}

/// Whether the ELF has the note that QEMU requires: owner "Xen", type 18 (the 32-bit entry point).
fn has_pvh_entry(kernel: &[u8]) -> bool {
    let is_note = |size: u8| {
        let note = [4, 0, 0, 0, size, 0, 0, 0, 18, 0, 0, 0, b'X', b'e', b'n', 0];
        kernel.windows(note.len()).any(|window| window == note)
    };
    is_note(8) || is_note(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_formats_are_left_alone() {
        assert_eq!(unpack(b""), None);
        assert_eq!(unpack(b"\x7fELF"), None);
        let mut image = vec![0; 4096];
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        assert_eq!(unpack(&image), None);
        image[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(unpack(&image), None);
    }
}
