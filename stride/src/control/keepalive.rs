//! The keepalive, which sends progress and reads messages on the control connection while a step runs.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::failure::Failure;
use super::message::Message;

/// Minimum time between two reads of the connection.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// Interval of progress messages. This interval must suit the peer's time-out, which may be shorter than this side's
/// but is at least `LEAST_TIMEOUT`.
///
/// While a step runs, the caller may read the connection only every 200 ms. This interval is a little shorter, so that
/// each such call also sends progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(180);
/// Maximum number of messages that one call reads, so that a peer that floods this side with messages does not block
/// it.
const MOST: usize = 1000;

/// Reads the connection at intervals, and sends progress to the peer at intervals.
#[derive(Debug)]
pub(super) struct Keepalive {
    looked: Option<Instant>,
    last_report: Instant,
}

impl Keepalive {
    pub(super) fn new() -> Self {
        Self { looked: None, last_report: Instant::now() }
    }

    /// If a read is due, returns the messages that have arrived, except for progress. The result contains intervals,
    /// and at most one message of another kind, which is the last.
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
                // The messages after this one belong to the next step.
                Some(other) => {
                    received.push(other);
                    break;
                }
            }
        }
        Ok(received)
    }

    /// Sends progress if the last progress message was sent long enough ago.
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
