//! What is heard and said of the other side while a step runs.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::failure::Failure;
use super::message::Message;

/// How often the connection is looked at, at most.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// How often the other side is told, whose time-out may be shorter than this side's, and is `LEAST_TIMEOUT` at least.
/// A little less than the time from one look of a side's to the next, so that it is said at each of them.
const SAY: Duration = Duration::from_millis(180);
/// How many messages are taken in at a look, at most: who floods this side does not hold it.
const MOST: usize = 1000;

/// Looks at a connection now and then, and tells the other side that this one is at work.
#[derive(Debug)]
pub(super) struct Keepalive {
    looked: Option<Instant>,
    told: Instant,
}

impl Keepalive {
    pub(super) fn new() -> Self {
        Self { looked: None, told: Instant::now() }
    }

    /// What has arrived, other than that the other side is at work, if it is time to look: intervals, and the first other message.
    pub(super) fn beat(&mut self, connection: &mut Connection, done: f64) -> Result<Vec<Message>, Failure> {
        let now = Instant::now();
        let often = LOOK.min(connection.timeout() / 8);
        if self.looked.is_some_and(|looked| now.duration_since(looked) < often) {
            return Ok(Vec::new());
        }
        self.looked = Some(now);
        self.say(connection, done)?;
        let mut heard = Vec::new();
        for _ in 0..MOST {
            match connection.arrived()? {
                None => break,
                Some(Message::Progress(_)) => {}
                Some(interval @ Message::Interval(_)) => heard.push(interval),
                // What comes after it is of what follows.
                Some(other) => {
                    heard.push(other);
                    break;
                }
            }
        }
        Ok(heard)
    }

    /// Tells the other side, if it is time to.
    pub(super) fn say(&mut self, connection: &mut Connection, done: f64) -> Result<(), Failure> {
        let now = Instant::now();
        if now.duration_since(self.told) >= SAY.min(connection.timeout() / 4) {
            self.told = now;
            connection.send(&Message::Progress(if done.is_finite() { done } else { 0.0 }))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::LEAST_TIMEOUT;

    #[test]
    fn the_shortest_time_out_hears_of_the_other_side_several_times() {
        assert!(SAY * 5 <= LEAST_TIMEOUT, "{SAY:?}");
    }
}
