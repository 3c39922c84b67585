//! Messages that are received, and read as a stream.

use super::*;

/// A message of which a receive has taken a part may be read as a stream, and its rest received.
#[test]
fn reads_and_receives_of_one_message_take_turns() {
    let mut server = Server::new(Transport::Tcp);
    let (mut socket, id) = server.raw_peer();
    let begin = send(Frame { a: 3_000, ..Frame::new(FrameKind::DATA) }, &[b'A'; 1_000]);
    let end = send(Frame { flags: 1, ..Frame::new(FrameKind::DATA) }, &[b'B'; 2_000]);
    let other = send(Frame { flags: 1, a: 5, ..Frame::new(FrameKind::DATA) }, b"other");
    for taken in [1_000, 400, 4_000] {
        let arrive = |server: &mut Server, socket: &mut TcpStream, bytes: &[u8], count| {
            let before = server.worker.stats(id).unwrap().receives;
            socket.write_all(bytes).unwrap();
            let begun = Instant::now();
            while server.worker.stats(id).unwrap().receives < before + count {
                server.worker.poll();
                assert!(begun.elapsed() < LONG);
            }
        };
        arrive(&mut server, &mut socket, &begin, 1);
        assert_eq!(server.worker.try_recv(id).unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut bytes = vec![0; taken];
        let mut read = 0;
        if taken <= 1_000 {
            read = server.worker.try_read(id, &mut bytes).unwrap();
            assert_eq!(read, taken);
        }
        arrive(&mut server, &mut socket, &[&end[..], &other[..]].concat(), 2);
        if taken > 1_000 {
            // Also the message after it, because a stream has no boundaries.
            read = server.worker.try_read(id, &mut bytes).unwrap();
            assert_eq!(bytes[..read], [&[b'A'; 1_000][..], &[b'B'; 2_000], b"other"].concat());
        } else {
            assert_eq!(bytes, vec![b'A'; read]);
            let rest = [vec![b'A'; 1_000 - read], vec![b'B'; 2_000]].concat();
            assert_eq!(server.worker.try_recv(id).unwrap()[..], rest[..]);
            assert_eq!(server.worker.try_recv(id).unwrap()[..], *b"other");
        }
    }
}
