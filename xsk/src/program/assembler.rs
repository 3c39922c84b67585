//! The built-in programs, instruction by instruction.
//!
//! At the start, register r1 points to the `xdp_md`. After the first instructions, r2 points to the first byte of the
//! packet, r3 to its end, and r6 contains the queue. The verifier requires a comparison with the end before each
//! access.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::Filter;
use crate::sys::bpf::Instruction;

/// Fields of `xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// Helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
/// Source field of a 64-bit load whose immediate is the descriptor of a map.
const MAP_DESCRIPTOR: u8 = 1;

const ETHERTYPE: i16 = 12;
const ETHERNET_LEN: i32 = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const UDP: i32 = 17;

/// A program under construction, whose checks jump to a common end.
#[derive(Debug, Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    /// Jumps to the verdict XDP_PASS.
    to_pass: Vec<usize>,
}

#[derive(Clone, Copy)]
enum Width {
    Byte,
    Half,
    Word,
}

impl Assembler {
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    /// `to = *(width *)(from + offset)`
    fn load(&mut self, width: Width, to: u8, from: u8, offset: i16) {
        let code = match width {
            Width::Word => 0x61,
            Width::Half => 0x69,
            Width::Byte => 0x71,
        };
        self.add(code, to, from, offset, 0);
    }

    /// `to = from`
    fn copy(&mut self, to: u8, from: u8) {
        self.add(0xbf, to, from, 0, 0);
    }

    /// `to = value`
    fn set(&mut self, to: u8, value: i32) {
        self.add(0xb7, to, 0, 0, value);
    }

    /// `if r4 > r3 goto pass`, with `r4 = r2 + len`: passes packets that are shorter.
    fn require_len(&mut self, len: i32) {
        self.copy(4, 2);
        self.add(0x07, 4, 0, 0, len);
        self.to_pass.push(self.instructions.len());
        self.add(0x2d, 4, 3, 0, 0);
    }

    /// `if register != value goto pass`
    fn require(&mut self, register: u8, value: i32) {
        self.to_pass.push(self.instructions.len());
        self.add(0x55, register, 0, 0, value);
    }

    /// Adds a jump, taken if `register == value`, or always; `land` sets its target.
    fn jump_if(&mut self, condition: Option<(u8, i32)>) -> usize {
        let (code, register, value) = condition.map_or((0x05, 0, 0), |(register, value)| (0x15, register, value));
        self.add(code, register, 0, 0, value);
        self.instructions.len() - 1
    }

    fn land(&mut self, jump: usize) {
        self.instructions[jump].offset = (self.instructions.len() - jump - 1) as i16;
    }

    /// `return bpf_redirect_map(map, r6, XDP_PASS)`; then the target of `pass`: `return XDP_PASS`.
    fn finish(mut self, map: BorrowedFd<'_>) -> Vec<Instruction> {
        self.add(0x18, 1, MAP_DESCRIPTOR, 0, map.as_raw_fd());
        self.add(0, 0, 0, 0, 0);
        self.copy(2, 6);
        self.set(3, XDP_PASS);
        self.add(0x85, 0, 0, 0, REDIRECT_MAP);
        self.add(0x95, 0, 0, 0, 0);
        if !self.to_pass.is_empty() {
            for jump in std::mem::take(&mut self.to_pass) {
                self.land(jump);
            }
            self.set(0, XDP_PASS);
            self.add(0x95, 0, 0, 0, 0);
        }
        self.instructions
    }
}

/// Returns the value that this machine reads when it loads two bytes in network order.
fn network(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// The program for a filter.
pub(super) fn program(filter: Filter, map: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.load(Width::Word, 6, 1, QUEUE);
    if filter != Filter::All {
        code.load(Width::Word, 2, 1, DATA);
        code.load(Width::Word, 3, 1, DATA_END);
    }
    match filter {
        Filter::All => {}
        Filter::EtherType(value) => {
            code.require_len(ETHERNET_LEN);
            code.load(Width::Half, 5, 2, ETHERTYPE);
            code.require(5, network(value));
        }
        Filter::UdpPort(port) => {
            // Ethernet, IPv4 without options, UDP: 14 + 20 + 8.
            code.require_len(42);
            code.load(Width::Half, 5, 2, ETHERTYPE);
            let to_v6 = code.jump_if(Some((5, network(IPV6))));
            code.require(5, network(IPV4));
            code.load(Width::Byte, 5, 2, 14);
            code.require(5, 0x45);
            // Checks that neither the flag "more fragments" nor an offset is set.
            code.load(Width::Half, 5, 2, 20);
            code.add(0x57, 5, 0, 0, network(0x3fff));
            code.require(5, 0);
            code.load(Width::Byte, 5, 2, 23);
            code.require(5, UDP);
            code.load(Width::Half, 5, 2, 36);
            let to_port = code.jump_if(None);
            // Ethernet, IPv6, UDP: 14 + 40 + 8.
            code.land(to_v6);
            code.require_len(62);
            code.load(Width::Byte, 5, 2, 20);
            code.require(5, UDP);
            code.load(Width::Half, 5, 2, 56);
            code.land(to_port);
            code.require(5, network(port));
        }
    }
    code.finish(map)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn program_for_all_packets_is_seven_instructions() {
        // The descriptor is arbitrary, because nothing is loaded.
        let file = std::io::stdin();
        let map = file.as_raw_fd();
        let code = program(Filter::All, file.as_fd());
        let bytes: Vec<(u8, u8, i16, i32)> =
            code.iter().map(|one| (one.code, one.registers, one.offset, one.immediate)).collect();
        let expected = [
            (0x61, 0x16, 16, 0),  // r6 = *(u32 *)(r1 + 16)
            (0x18, 0x11, 0, map), // r1 = map
            (0x00, 0x00, 0, 0),
            (0xbf, 0x62, 0, 0),  // r2 = r6
            (0xb7, 0x03, 0, 2),  // r3 = XDP_PASS
            (0x85, 0x00, 0, 51), // call bpf_redirect_map
            (0x95, 0x00, 0, 0),  // exit
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn jump_offsets_lead_to_pass() {
        let file = std::io::stdin();
        for filter in [Filter::UdpPort(4791), Filter::EtherType(0x88b5)] {
            let code = program(filter, file.as_fd());
            let pass = code.len() - 2;
            assert_eq!((code[pass].code, code[pass].immediate), (0xb7, XDP_PASS));
            let jumps = code.iter().enumerate().filter(|(_, one)| [0x2d, 0x55].contains(&one.code));
            let mut count = 0;
            for (at, jump) in jumps {
                assert_eq!(at + 1 + jump.offset as usize, pass);
                count += 1;
            }
            assert!(count >= 2);
        }
    }
}
