//! Acceptors and connections in an event loop of the program, here mio's.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use trespass::{Acceptor, Buf, Connection, Transport};

use crate::common::{bytes, device, on_both, worker};

/// A time limit that only a lost wake-up reaches.
const LONG: Duration = Duration::from_secs(60);
const CLIENTS: usize = 3;
/// How many messages each client sends. The first one reads only after it has sent everything, which is more than the
/// server may send before, so that sends wait.
const MESSAGES: [usize; CLIENTS] = [60, 10, 10];
const ACCEPTOR: Token = Token(0);

/// One connection of the server, and the messages that wait to be sent.
struct Echo {
    connection: Connection,
    waiting: VecDeque<Buf>,
    has_ended: bool,
    /// Whether everything was answered. A signal for a call that has succeeded meanwhile may still follow.
    is_served: bool,
}

impl Echo {
    /// Calls until each call would block. Returns whether everything was answered.
    fn run(&mut self) -> bool {
        loop {
            while let Some(message) = self.waiting.pop_front() {
                if let Err((error, message)) = self.connection.try_send_buf(message) {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    self.waiting.push_front(message);
                    break;
                }
            }
            match self.connection.try_recv() {
                _ if self.has_ended => return self.waiting.is_empty(),
                Ok(Some(message)) => self.waiting.push_back(message),
                Ok(None) => self.has_ended = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Serves until all connections have ended, with one thread that sleeps in mio.
fn serve(acceptor: &Acceptor) {
    let mut poll = Poll::new().unwrap();
    let watch = |poll: &Poll, descriptor: i32, token| {
        poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE).unwrap();
    };
    watch(&poll, acceptor.descriptor().unwrap().as_raw_fd(), ACCEPTOR);
    let (mut events, mut echoes, mut served) = (Events::with_capacity(8), BTreeMap::new(), 0);
    while served < CLIENTS {
        poll.poll(&mut events, Some(LONG)).unwrap();
        assert!(!events.is_empty(), "no signal: {} connections", echoes.len());
        for event in &events {
            if event.token() == ACCEPTOR {
                loop {
                    match acceptor.try_accept() {
                        Ok(connection) => {
                            let token = Token(echoes.len() + 1);
                            watch(&poll, connection.descriptor().unwrap().as_raw_fd(), token);
                            let (waiting, has_ended, is_served) = (VecDeque::new(), false, false);
                            echoes.insert(token, Echo { connection, waiting, has_ended, is_served });
                        }
                        Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
                    }
                }
            } else if let Some(echo) = echoes.get_mut(&event.token())
                && !echo.is_served
                && echo.run()
            {
                echo.connection.shutdown().unwrap();
                echo.is_served = true;
                served += 1;
            }
        }
    }
}

fn message(client: usize, index: usize) -> Vec<u8> {
    bytes(index * 9_973 % 200_000, client * 100 + index)
}

/// mio waits for edges, so each call that would block must be followed by a new signal.
#[test]
fn mio_serves_acceptors_and_connections() {
    on_both(|transport: Transport| {
        let server = worker(transport);
        let acceptor = Acceptor::bind_on(&server, device()).unwrap();
        let address = acceptor.local_addr();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn(move || {
                        let connection = Connection::connect_on(&worker(transport), address, Some(LONG)).unwrap();
                        for index in 0..MESSAGES[client] {
                            connection.send(&message(client, index)).unwrap();
                            if client > 0 {
                                assert_eq!(connection.recv().unwrap().as_deref(), Some(&*message(client, index)));
                            }
                        }
                        connection.shutdown().unwrap();
                        for index in 0..if client > 0 { 0 } else { MESSAGES[0] } {
                            assert_eq!(connection.recv().unwrap().as_deref(), Some(&*message(client, index)));
                        }
                        assert!(connection.recv().unwrap().is_none());
                    })
                })
                .collect();
            serve(&acceptor);
            for client in clients {
                client.join().unwrap();
            }
        });
    });
}

/// The descriptor of an acceptor signals each connection, and the end.
#[test]
fn descriptor_of_an_acceptor_is_readable_while_connections_wait() {
    on_both(|transport| {
        let (server, client) = (worker(transport), worker(transport));
        let acceptor = Acceptor::bind_on(&server, device()).unwrap();
        let is_readable = |descriptor: BorrowedFd<'_>, seconds| {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() == 1
        };
        let is_signalled = |seconds| is_readable(acceptor.descriptor().unwrap(), seconds);
        let try_accept = || acceptor.try_accept().map_err(|error| error.kind());
        // A program that accepts in blocking mode trusts the signal.
        assert!(!is_signalled(0), "no connection waits");
        assert_eq!(try_accept().err(), Some(ErrorKind::WouldBlock));
        assert!(!is_signalled(0));
        let connect = || Connection::connect_on(&client, acceptor.local_addr(), Some(LONG)).unwrap();
        let _clients = [connect(), connect()];
        let mut accepted = Vec::new();
        while accepted.len() < 2 {
            assert!(is_signalled(60), "{} connections", accepted.len());
            accepted.extend(try_accept());
        }
        assert_eq!(try_accept().err(), Some(ErrorKind::WouldBlock));
        assert!(!is_signalled(0));
        // A connection of another acceptor of the worker does not signal.
        let other = Acceptor::bind_on(&server, device()).unwrap();
        let _waits = Connection::connect_on(&client, other.local_addr(), Some(LONG)).unwrap();
        other.accept_until(Some(Instant::now() + LONG)).unwrap();
        assert!(!is_signalled(0));
        // One that has arrived before the first call signals.
        let _waits = Connection::connect_on(&client, other.local_addr(), Some(LONG)).unwrap();
        while !is_readable(other.descriptor().unwrap(), 0) {
            _ = acceptor.try_accept();
        }
        acceptor.close();
        assert!(is_signalled(60), "the end");
        assert_eq!(try_accept().err(), Some(ErrorKind::NotConnected));
    });
}
