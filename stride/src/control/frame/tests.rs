use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// Reads a frame from a stream that consists of these bytes.
fn read(bytes: &[u8]) -> Result<Frame, Unframed> {
    let (mut one, mut other) = UnixStream::pair().unwrap();
    one.write_all(bytes).unwrap();
    drop(one);
    Frame::read(&mut other, soon())
}

#[test]
fn frames_round_trip() {
    let (mut one, mut other) = UnixStream::pair().unwrap();
    for length in [0_usize, 1, 4096, 50_000] {
        let frame = Frame { protocol: 7, kind: 3, body: vec![b'x'; length] };
        frame.write(&mut one, soon()).unwrap();
        assert_eq!(Frame::read(&mut other, soon()).unwrap(), frame);
    }
}

#[test]
fn layout_matches_the_documentation() {
    let (mut one, mut other) = UnixStream::pair().unwrap();
    Frame { protocol: 0x0102, kind: 0x0304, body: b"{}".to_vec() }.write(&mut one, soon()).unwrap();
    drop(one);
    let mut bytes = Vec::new();
    other.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"\x93stride\n\x01\x02\x03\x04\0\0\0\x02{}");
}

#[test]
fn lengths_are_bounded() {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([0, 1, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    assert!(matches!(read(&bytes), Err(Unframed::Long(u32::MAX))));
    let (mut one, _other) = UnixStream::pair().unwrap();
    let long = Frame { protocol: 1, kind: 1, body: vec![0; LONGEST as usize + 1] };
    assert_eq!(long.write(&mut one, soon()).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn end_and_silence_are_different_errors() {
    assert!(matches!(read(b""), Err(Unframed::End(0))));
    assert!(matches!(read(b"\x93str"), Err(Unframed::End(4))));
    assert!(matches!(read(b"\x93stride\n\0\x01\0\x01\0\0\0\x05ab"), Err(Unframed::End(18))));
    let (_one, mut other) = UnixStream::pair().unwrap();
    let over = Deadline::after(Duration::ZERO);
    let Err(Unframed::Io(error)) = Frame::read(&mut other, over) else { panic!() };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn foreign_peers_are_identified_by_first_bytes() {
    for (bytes, part) in [
        (&b"6.29\0\0\0\0\0\0\0\0\0\0\0\0"[..], "perftest 6.29"),
        (b"HTTP/1.1 400 Bad", "a web server"),
        (b"GET / HTTP/1.1\r\n", "a web client"),
        (b"SSH-2.0-OpenSSH", "SSH"),
        (b"\x16\x03\x01\x02", "TLS"),
        (b"\0\x01\xff", r#"begins with "\x00\x01\xff""#),
    ] {
        let Err(Unframed::Foreign(first)) = read(bytes) else { panic!("{bytes:?}") };
        assert!(speaker(&first).contains(part), "{}", speaker(&first));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let _ = speaker(&bytes);
    }

    #[test]
    fn announced_length_allocates_nothing(rest in prop::collection::vec(any::<u8>(), 8..64)) {
        let bytes: Vec<u8> = MAGIC.into_iter().chain(rest).collect();
        if let Ok(frame) = read(&bytes) {
            prop_assert!(frame.body.len() <= bytes.len());
        }
    }
}
