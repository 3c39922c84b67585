//! Both ends of a connection over a network that loses, repeats and reorders messages.

use super::tests::{GUID, OTHER_ID, REP, REQ};
use super::*;

/// The generator of Knuth's MMIX; its high bits are the random ones.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// One end with its program.
struct End {
    connection: Option<Connection>,
    events: Vec<Event>,
    has_disconnected: bool,
}

impl End {
    fn is(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| is_it(event)).count()
    }

    fn is_connected(&self) -> bool {
        self.is(|event| matches!(event, Event::Established | Event::Replied(_))) > 0
    }
}

struct World {
    random: Random,
    now: Instant,
    ends: [End; 2],
    /// The messages in flight to an end, with their arrival times.
    flying: Vec<(Instant, usize, u64, Message)>,
    lost: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let mut random = Random(seed);
        let lost = random.below(4) * 15;
        let end = |connection| End { connection, events: Vec::new(), has_disconnected: false };
        let first = Connection::request(REQ, 1, Duration::ZERO, now);
        Self { random, now, ends: [end(Some(first)), end(None)], flying: Vec::new(), lost }
    }

    /// Sends what the ends have to send, and gives their events to the programs.
    fn pump(&mut self) {
        let now = self.now;
        for index in 0..2 {
            let Some(connection) = &mut self.ends[index].connection else { continue };
            while let Some((transaction, message)) = connection.next_message() {
                let copies = match self.random.below(100) {
                    roll if roll < self.lost => 0,
                    roll if roll < self.lost + 10 => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let arrival = now + Duration::from_millis(self.random.below(500));
                    self.flying.push((arrival, 1 - index, transaction, message));
                }
            }
            while let Some(event) = connection.next_event() {
                if matches!(event, Event::Replied(_)) {
                    connection.ready(now);
                }
                if event == Event::Disconnected {
                    connection.disconnect(now);
                }
                self.ends[index].events.push(event);
            }
        }
    }

    fn deliver(&mut self, to: usize, transaction: u64, message: &Message) {
        let now = self.now;
        match (&mut self.ends[to].connection, message) {
            (Some(connection), _) => connection.received(transaction, message, now),
            (none, Message::Req(req)) => {
                let mut made = Connection::requested(OTHER_ID, transaction, req, GUID, now);
                if self.random.below(2) == 0 {
                    made.accept(REP, now);
                }
                *none = Some(made);
            }
            _ => {}
        }
    }

    /// Lets one of the programs act, or time pass.
    fn step(&mut self) {
        self.pump();
        self.pump();
        let index = self.random.below(2) as usize;
        let (now, acts, ends) = (self.now, self.random.below(3) == 0, self.random.below(4) == 0);
        let both = self.ends.iter().all(End::is_connected);
        // A program accepts soon, so that the request does not time out.
        if let Some(connection) = self.ends[1].connection.as_mut().filter(|_| self.random.below(2) == 0) {
            connection.accept(REP, now);
        }
        let end = &mut self.ends[index];
        if let Some(connection) = end.connection.as_mut().filter(|_| acts) {
            if both && ends {
                connection.disconnect(now);
                end.has_disconnected = true;
            }
            return;
        }
        let arrival = self.flying.iter().map(|(when, ..)| *when).min();
        let deadlines = self.ends.iter().filter_map(|end| end.connection.as_ref()?.deadline());
        let Some(next) = deadlines.chain(arrival).min() else { return };
        self.now = self.now.max(next);
        while let Some(index) = self.flying.iter().position(|(when, ..)| *when <= self.now) {
            let (_, to, transaction, message) = self.flying.swap_remove(index);
            self.deliver(to, transaction, &message);
        }
        for end in &mut self.ends {
            if let Some(connection) = &mut end.connection {
                connection.expired(self.now);
            }
        }
    }
}

/// Each end is connected once and disconnected once, whichever end begins.
#[test]
fn ends_agree_on_a_bad_network() {
    for seed in 0..if cfg!(miri) { 2 } else { 500 } {
        let mut world = World::new(seed);
        let is_closed = |end: &End| end.connection.as_ref().is_some_and(Connection::is_closed);
        let mut steps = 0;
        while !world.ends.iter().all(is_closed) || !world.flying.is_empty() {
            world.step();
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: the connection does not end");
        }
        world.pump();
        let [first, other] = &world.ends;
        assert_eq!(first.is(|event| matches!(event, Event::Replied(_))), 1, "seed {seed}: {:?}", first.events);
        assert_eq!(other.is(|event| *event == Event::Established), 1, "seed {seed}: {:?}", other.events);
        for end in &world.ends {
            assert_eq!(end.events.len(), 2, "seed {seed}: {:?}", end.events);
            assert_eq!(end.events[1], Event::Disconnected, "seed {seed}");
        }
        assert!(world.ends.iter().any(|end| end.has_disconnected));
    }
}
