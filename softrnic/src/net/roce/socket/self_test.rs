//! Checks which Identification the kernel writes into the IPv4 headers of a socket.
//!
//! The ICRC covers the Identification, but a socket neither selects nor reads it. For a socket that is not connected and
//! has the option IP_PMTUDISC_PROBE, Linux selects 0, and numbers the segments of one call from 0. If a kernel selects
//! something else, peers drop all packets without a trace. The kernel returns packets that a socket has sent, with their
//! headers, if the socket requests timestamps (SO_TIMESTAMPING).

use std::net::{Ipv4Addr, SocketAddrV4};

use rustix::io::Errno;

use crate::sys::datagram::{self, Control, Name, Received};
use crate::sys::descriptor::Descriptor;
use crate::sys::udp;

/// The length of the header of Ethernet, and so of the loopback interface, and the EtherType of IPv4 at its end.
const LINK_HEADER: usize = 14;
const IPV4: [u8; 2] = [8, 0];
/// The version of IPv4 and the length of its header without options.
const VERSION: u8 = 0x45;

/// The result of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The kernel has selected another Identification, or has not set DF.
    Failed {
        identification: u16,
        has_df: bool,
    },
    /// The kernel has not returned the packets.
    Unknown(&'static str),
}

/// Runs the test with a socket that has the options of the sockets for packets, and that nothing else uses.
pub(super) fn run(socket: &Descriptor, has_segmentation: bool) -> Outcome {
    match echoes(socket, has_segmentation) {
        Ok(outcome) => outcome,
        Err(_) => Outcome::Unknown("the loopback interface does not work"),
    }
}

fn echoes(socket: &Descriptor, has_segmentation: bool) -> Result<Outcome, Errno> {
    rustix::net::bind(socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let address = SocketAddrV4::try_from(rustix::net::getsockname(socket)?)?;
    let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    udp::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags.cast_signed())?;
    let name = Name::ipv4(*address.ip(), address.port());
    let mut segments = Control::EMPTY;
    segments.push(libc::SOL_UDP, libc::UDP_SEGMENT, &8_u16.to_ne_bytes());
    let mut received = Received::new();
    for control in [Some(Control::EMPTY), has_segmentation.then_some(segments)].into_iter().flatten() {
        datagram::send(socket, &name, &[0; 16], &control)?;
        // On the loopback interface, the kernel returns the packet before `sendmsg` returns.
        received.receive(socket, libc::MSG_ERRQUEUE)?;
        let outcome =
            received.iter().next().map_or(Outcome::Unknown("it returns no packets"), |echo| judge(echo.bytes));
        if outcome != Outcome::Passed {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Passed)
}

/// Reads the header of a packet that the kernel has returned.
fn judge(frame: &[u8]) -> Outcome {
    if frame.is_empty() {
        return Outcome::Unknown("net.core.tstamp_allow_data is 0");
    }
    match frame.get(LINK_HEADER - 2..) {
        Some(&[a, b, VERSION, _, _, _, high, low, fragment, ..]) if [a, b] == IPV4 => {
            let (identification, has_df) = (u16::from_be_bytes([high, low]), fragment == 0x40);
            if identification == 0 && has_df { Outcome::Passed } else { Outcome::Failed { identification, has_df } }
        }
        _ => Outcome::Unknown("it returns packets with an unknown header"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::roce::socket::{ipv4, probe};

    #[test]
    #[cfg_attr(miri, ignore = "opens sockets")]
    fn socket_with_the_options_passes() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/tstamp_allow_data").unwrap_or_default();
        let expected = match allowed.trim() {
            "0" if !rustix::process::geteuid().is_root() => Outcome::Unknown("net.core.tstamp_allow_data is 0"),
            _ => Outcome::Passed,
        };
        assert_eq!(run(&probe().unwrap(), true), expected);
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens sockets")]
    fn socket_without_the_options_fails() {
        let socket = ipv4().unwrap();
        assert!(!matches!(run(&socket, false), Outcome::Passed));
    }

    #[test]
    fn other_headers_are_no_result() {
        let mut frame = [0; 42];
        (frame[12], frame[14], frame[20]) = (8, 0x45, 0x40);
        assert_eq!(judge(&frame), Outcome::Passed);
        frame[19] = 1;
        assert_eq!(judge(&frame), Outcome::Failed { identification: 1, has_df: true });
        frame[20] = 0;
        assert_eq!(judge(&frame), Outcome::Failed { identification: 1, has_df: false });
        assert!(matches!(judge(&frame[..20]), Outcome::Unknown(_)));
        assert!(matches!(judge(&[0; 42]), Outcome::Unknown(_)));
        assert!(matches!(judge(&[]), Outcome::Unknown(text) if text.contains("tstamp_allow_data")));
    }
}
