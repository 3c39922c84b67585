//! `bpf(2)`: maps, programs and links.

use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::c_long;

use super::{Errno, errno};

const MAP_CREATE: c_long = 0;
const MAP_UPDATE_ELEM: c_long = 2;
const MAP_DELETE_ELEM: c_long = 3;
const PROG_LOAD: c_long = 5;
const PROG_TEST_RUN: c_long = 10;
const LINK_CREATE: c_long = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const PROG_HAS_FRAGS: u32 = 1 << 5;

/// One instruction of eBPF.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the lower half, source in the upper.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// Calls bpf(2) with the part of its argument that a command uses.
///
/// # Safety
///
/// `attributes` has the kernel's layout for the command, and its pointers are valid for what the command reads and
/// writes.
unsafe fn call<T>(command: c_long, attributes: &mut T) -> Result<c_long, Errno> {
    // SAFETY: the caller ensures that the argument fits; the length bounds what the kernel reads.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>() as c_long) };
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn owned(fd: c_long) -> OwnedFd {
    // SAFETY: the command has just opened the descriptor for its caller alone; bpf(2) sets close-on-exec.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Creates a map of sockets by queue.
pub(crate) fn create_xsk_map(queues: u32) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let mut attributes = Attributes { map_type: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: queues };
    // SAFETY: the attributes begin like those of BPF_MAP_CREATE, and contain no pointers.
    unsafe { call(MAP_CREATE, &mut attributes) }.map(owned)
}

#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Puts a socket into the slot of a queue, or replaces the one there.
pub(crate) fn set_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let socket = socket.as_raw_fd();
    let key = std::ptr::from_ref(&queue) as u64;
    let value = std::ptr::from_ref(&socket) as u64;
    let mut element = Element { map: map.as_raw_fd() as u32, padding: 0, key, value, flags: 0 };
    // SAFETY: key and value have 4 bytes each, as in an XSKMAP, and stay readable until the call returns.
    unsafe { call(MAP_UPDATE_ELEM, &mut element) }.map(drop)
}

/// Empties the slot of a queue.
pub(crate) fn remove_socket(map: BorrowedFd<'_>, queue: u32) -> Result<(), Errno> {
    let key = std::ptr::from_ref(&queue) as u64;
    let mut element = Element { map: map.as_raw_fd() as u32, padding: 0, key, value: 0, flags: 0 };
    // SAFETY: the key has 4 bytes, as in an XSKMAP, and stays readable until the call returns; there is no value.
    unsafe { call(MAP_DELETE_ELEM, &mut element) }.map(drop)
}

/// Loads an XDP program. Does not request the verifier's report, because the programs are part of this crate.
pub(crate) fn load_xdp(instructions: &[Instruction], has_frags: bool) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Attributes {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        name: [u8; 16],
        ifindex: u32,
        expected_attach_type: u32,
    }
    let license = c"MIT";
    let mut attributes = Attributes {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: if has_frags { PROG_HAS_FRAGS } else { 0 },
        name: *b"xsk\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ifindex: 0,
        expected_attach_type: ATTACH_XDP,
    };
    // A signal interrupts the verifier, which then fails with EAGAIN. The limit is for programs whose signals never stop.
    let mut attempts = 100;
    loop {
        attempts -= 1;
        // SAFETY: the attributes begin like those of BPF_PROG_LOAD; instructions and licence are readable until the
        // call returns.
        match unsafe { call(PROG_LOAD, &mut attributes) } {
            Err(error) if error == libc::EAGAIN && attempts > 0 => {}
            end => return end.map(owned),
        }
    }
}

/// Attaches an XDP program to an interface for as long as the returned link is open.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, interface: u32, flags: u32) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    let mut attributes = Attributes { program, interface, attach_type: ATTACH_XDP, flags };
    // SAFETY: the attributes begin like those of BPF_LINK_CREATE, and contain no pointers.
    unsafe { call(LINK_CREATE, &mut attributes) }.map(owned)
}

/// Runs a program on a frame and returns its verdict.
pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> Result<u32, Errno> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        verdict: u32,
        size_in: u32,
        size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }
    let mut attributes = Attributes {
        program: program.as_raw_fd() as u32,
        verdict: 0,
        size_in: frame.len() as u32,
        size_out: 0,
        data_in: frame.as_ptr() as u64,
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    // SAFETY: the attributes begin like those of BPF_PROG_TEST_RUN; the frame is readable, and no output is requested.
    unsafe { call(PROG_TEST_RUN, &mut attributes) }?;
    Ok(attributes.verdict)
}
