//! XDP programs of the tests, instruction by instruction: examples of what a user's program does before it redirects.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use xsk::{Program, SocketMap};

use crate::link::End;

/// Registers of the programs: r6 is the context.
const CONTEXT: u8 = 6;
const HAS_FRAGS: u32 = 1 << 5;

/// One instruction.
fn code(code: u8, to: u8, from: u8, offset: i16, value: i32) -> [u8; 8] {
    let mut bytes = [code, from << 4 | to, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
    bytes[4..].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// `helper(context, value)`
fn call(helper: i32, value: i32) -> Vec<[u8; 8]> {
    vec![code(0xbf, 1, CONTEXT, 0, 0), code(0xb7, 2, 0, 0, value), code(0x85, 0, 0, 0, helper)]
}

/// `r2` = a field of the context, `r3` = another, and a jump over `skip` instructions if fewer than `len` bytes lie
/// between them.
fn range(from: i16, to: i16, len: i32, skip: i16) -> Vec<[u8; 8]> {
    vec![
        code(0x61, 2, CONTEXT, from, 0),
        code(0x61, 3, CONTEXT, to, 0),
        code(0xbf, 4, 2, 0, 0),
        code(0x07, 4, 0, 0, len),
        code(0x2d, 4, 3, skip, 0),
    ]
}

/// `bpf_xdp_adjust_tail(context, bytes)`
pub(crate) fn adjust_tail(bytes: i32) -> Vec<[u8; 8]> {
    call(65, bytes)
}

/// `bpf_xdp_adjust_meta(context, -4)`, and a value there.
pub(crate) fn write_metadata(value: i32) -> Vec<[u8; 8]> {
    let write = code(0x62, 2, 0, 0, value);
    [call(54, -4), range(8, 0, 4, 1), vec![write]].concat()
}

/// Drops packets with an odd number.
pub(crate) fn drop_odd() -> Vec<[u8; 8]> {
    let drop = [
        code(0x71, 5, 2, 17, 0),
        code(0x57, 5, 0, 0, 1),
        code(0x15, 5, 0, 2, 0),
        code(0xb7, 0, 0, 0, 1),
        code(0x95, 0, 0, 0, 0),
    ];
    [range(0, 4, 18, drop.len() as i16), drop.to_vec()].concat()
}

/// Loads these instructions, followed by a redirection to the slot of the queue, or of the packet's number modulo 2.
pub(crate) fn load(prefix: Vec<[u8; 8]>, by_number: bool, has_frags: bool) -> Program {
    let map = SocketMap::new(2).unwrap();
    let mut all = vec![code(0xbf, CONTEXT, 1, 0, 0)];
    all.extend(prefix);
    all.push(code(0x61, 7, CONTEXT, 16, 0));
    if by_number {
        all.extend(range(0, 4, 18, 2));
        all.extend([code(0x71, 7, 2, 17, 0), code(0x57, 7, 0, 0, 1)]);
    }
    all.extend([code(0x18, 1, 1, 0, map.as_fd().as_raw_fd()), code(0, 0, 0, 0, 0), code(0xbf, 2, 7, 0, 0)]);
    all.extend([code(0xb7, 3, 0, 0, 2), code(0x85, 0, 0, 0, 51), code(0x95, 0, 0, 0, 0)]);
    // `union bpf_attr` for BPF_PROG_LOAD.
    let mut attributes = [0_u8; 72];
    let mut put = |at: usize, bytes: &[u8]| attributes[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &6_u32.to_ne_bytes());
    put(4, &(all.len() as u32).to_ne_bytes());
    put(8, &(all.as_ptr() as u64).to_ne_bytes());
    put(16, &(c"MIT".as_ptr() as u64).to_ne_bytes());
    put(44, &if has_frags { HAS_FRAGS } else { 0 }.to_ne_bytes());
    put(68, &37_u32.to_ne_bytes());
    // SAFETY: the attributes are those of the command; instructions and licence are readable until the call returns.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, 5, attributes.as_mut_ptr(), attributes.len()) };
    assert!(fd >= 0, "the verifier rejects the program: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new.
    Program::from_parts(unsafe { OwnedFd::from_raw_fd(fd as i32) }, map)
}

impl End {
    /// Puts this socket into the slot of its queue.
    pub(crate) fn join(&self, program: &Program) {
        program.map().insert(self.queue.rx.socket()).unwrap();
    }
}
