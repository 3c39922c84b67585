//! Receives in regions, of which each test drives the turns.

use super::*;
use crate::proto::Place;
use crate::{Placed, Region};

struct Both {
    server: Server,
    client: Worker,
    near: ConnectionId,
    far: ConnectionId,
    region: Region,
}

impl Both {
    fn new(memory: usize) -> Both {
        softrnic::register().unwrap();
        let mut server = Server::with(&Options { memory, ..Options::default() });
        let (client, near, far) = server.neighbour(Kind::Rdma);
        let region = server.worker.registrar(far).unwrap().region(1 << 20).unwrap();
        let mut both = Both { server, client, near, far, region };
        // From now on, nothing is READ ahead.
        assert_eq!(both.receive(&both.place()).unwrap_err().kind(), ErrorKind::WouldBlock);
        both
    }

    fn place(&self) -> Place {
        self.region.place(0..1 << 20).unwrap()
    }

    fn receive(&mut self, place: &Place) -> io::Result<Placed> {
        self.server.worker.try_recv_into_region(self.far, place)
    }

    fn send(&mut self, length: usize) {
        self.client.try_send(self.near, &vec![7; length]).unwrap();
        self.until_ready();
    }

    fn until_ready(&mut self) {
        let begun = Instant::now();
        while !self.server.worker.can_receive(self.far) {
            self.client.poll();
            self.server.worker.poll();
            assert!(begun.elapsed() < LONG);
        }
    }

    /// Starts the READ of the next message, and lets it end.
    fn start(&mut self, place: &Place) {
        assert_eq!(self.receive(place).unwrap_err().kind(), ErrorKind::WouldBlock);
        self.server.worker.poll();
        self.until_ready();
    }
}

#[test]
fn worker_posts_the_read_before_it_sleeps() {
    let mut both = Both::new(64 << 20);
    both.send(100_000);
    assert_eq!(both.receive(&both.place()).unwrap_err().kind(), ErrorKind::WouldBlock);
    both.server.worker.arm().unwrap();
    assert!(!both.server.worker.verbs.get(0).unwrap().has_work());
}

#[test]
fn region_is_free_when_the_read_of_a_call_that_was_given_up_has_ended() {
    let mut both = Both::new(64 << 20);
    both.send(100_000);
    let place = both.place();
    both.start(&place);
    drop(place);
    assert!(both.region.is_unique());
    // Another call does not get what is in the region now.
    both.region.write_at(0, &[9; 100_000]).unwrap();
    let place = both.place();
    both.start(&place);
    assert!(matches!(both.receive(&place), Ok(Placed::Region(100_000))));
    let mut bytes = vec![0; 100_000];
    both.region.read_at(0, &mut bytes).unwrap();
    assert!(bytes == [7; 100_000]);
}

#[test]
fn region_is_free_after_a_connection_has_ended_with_a_message_for_it() {
    let mut both = Both::new(64 << 20);
    both.send(100_000);
    let Both { mut server, client, far, region, .. } = both;
    drop(client);
    let begun = Instant::now();
    while server.worker.outcome(far).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
        server.worker.poll();
        assert!(begun.elapsed() < LONG);
    }
    let place = region.place(0..1 << 20).unwrap();
    assert_ne!(server.worker.try_recv_into_region(far, &place).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(place);
    server.worker.poll();
    assert!(!server.worker.verbs.get(0).unwrap().has_work());
    region.release().unwrap();
}

/// The message needs no memory of the pool.
#[test]
fn message_that_the_pool_cannot_hold_arrives_in_a_region() {
    let mut both = Both::new(1 << 20);
    // An ordinary receive finds no memory.
    let message = vec![7; 1_000_000];
    both.client.try_send(both.near, &message).unwrap();
    let begun = Instant::now();
    while both.server.worker.try_recv(both.far).map_err(|error| error.kind()).err() != Some(ErrorKind::OutOfMemory) {
        both.client.poll();
        both.server.worker.poll();
        assert!(begun.elapsed() < LONG);
    }
    let place = both.place();
    both.start(&place);
    assert!(matches!(both.receive(&place), Ok(Placed::Region(1_000_000))));
    assert_eq!(both.receive(&place).unwrap_err().kind(), ErrorKind::WouldBlock);
}
