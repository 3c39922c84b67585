//! Keepalive on the control connection while a step runs.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::failure::Failure;
use super::message::Message;

/// Minimum time between two reads of the connection.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// Interval of progress messages. The peer's time-out may be shorter than this side's, and is at least `LEAST_TIMEOUT`.
///
/// A little less than the time between two reads, so that each read also sends.
const REPORT_INTERVAL: Duration = Duration::from_millis(180);
/// Maximum number of messages per read, so that a flood does not block this side.
const MOST: usize = 1000;

/// Reads the connection at intervals, and sends progress.
#[derive(Debug)]
pub(super) struct Keepalive {
    looked: Option<Instant>,
    last_report: Instant,
}

impl Keepalive {
    pub(super) fn new() -> Self {
        Self { looked: None, last_report: Instant::now() }
    }

    /// Returns messages that have arrived, without progress, if a read is due: intervals, and the first other message.
    pub(super) fn beat(&mut self, connection: &mut Connection, done: f64) -> Result<Vec<Message>, Failure> {
        let now = Instant::now();
        let often = LOOK.min(connection.timeout() / 8);
        if self.looked.is_some_and(|looked| now.duration_since(looked) < often) {
            return Ok(Vec::new());
        }
        self.looked = Some(now);
        self.report(connection, done)?;
        let mut received = Vec::new();
        for _ in 0..MOST {
            match connection.arrived()? {
                None => break,
                Some(Message::Progress(_)) => {}
                Some(interval @ Message::Interval(_)) => received.push(interval),
                // Messages after this one belong to the next step.
                Some(other) => {
                    received.push(other);
                    break;
                }
            }
        }
        Ok(received)
    }

    /// Sends progress, if it is due.
    pub(super) fn report(&mut self, connection: &mut Connection, done: f64) -> Result<(), Failure> {
        let now = Instant::now();
        if now.duration_since(self.last_report) >= REPORT_INTERVAL.min(connection.timeout() / 4) {
            self.last_report = now;
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
    fn shortest_timeout_spans_several_reports() {
        assert!(REPORT_INTERVAL * 5 <= LEAST_TIMEOUT, "{REPORT_INTERVAL:?}");
    }
}
