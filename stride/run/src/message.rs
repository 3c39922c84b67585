//! The loops for messages of the trespass library, over one connection.

use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;
use trespass::{ConnectionId, Worker};

use crate::amount::Amount;
use crate::latency::{Samples, Until};
use crate::signal::Signal;
use crate::tsc::Tsc;

/// Longest time that a loop sleeps before it checks whether it has to stop.
const TICK: Duration = Duration::from_millis(20);
/// Largest message that the library copies. The library sends larger messages from the program's buffer.
const COPIED: usize = 16 << 10;
/// Number of latency samples that are stored one by one.
const KEPT: u64 = 1 << 20;

/// The loops of a step.
#[derive(Debug)]
pub struct Messages<'l> {
    /// The worker of the connection.
    pub worker: &'l mut Worker,
    /// The connection.
    pub id: ConnectionId,
    /// The message to send.
    pub message: &'l [u8],
    /// How much is measured.
    pub amount: Amount,
    /// Whether the thread sleeps until an event.
    pub sleeps_on_events: bool,
    /// The state that is shared with the thread that waits for the loop.
    pub signal: &'l Signal,
}

impl Messages<'_> {
    /// Runs the client of a latency test, which sends a message and waits for the reply.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection fails.
    pub fn ping(&mut self) -> Result<Samples> {
        let (mut samples, until) = match self.amount {
            Amount::Messages { count, warm_up } => {
                (Samples::new(count.min(KEPT) as usize, warm_up), Until::Count(count + warm_up))
            }
            Amount::Time { time, warm_up } => {
                let begin = Tsc::now().after(warm_up);
                (Samples::new(KEPT as usize, 0).from(begin), Until::Time(begin.after(time)))
            }
        };
        let mut count = 0;
        while !until.is_reached(count, samples.stamp(self.signal)) && self.send_one()? && self.receive_one()? {
            count += 1;
            self.signal.add(1);
        }
        Ok(samples)
    }

    /// Runs the client of a bandwidth test, which sends until the peer's device has received everything. Returns the
    /// number of messages and the time.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection fails.
    pub fn send(&mut self) -> Result<(u64, Duration)> {
        let (warm_up, until) = match self.amount {
            Amount::Messages { count, warm_up } => {
                self.send_until(|sent, _| sent >= warm_up)?;
                (Duration::ZERO, Until::Count(count))
            }
            Amount::Time { time, warm_up } => (warm_up, Until::Time(Tsc::now().after(warm_up + time))),
        };
        let begin = Tsc::now().after(warm_up);
        self.send_until(|_, now| now >= begin)?;
        let begun = Instant::now();
        let messages = self.send_until(|sent, now| until.is_reached(sent, now))?;
        while !self.worker.is_flushed(self.id)? {
            self.worker.poll();
        }
        Ok((messages, begun.elapsed()))
    }

    fn send_until(&mut self, mut is_over: impl FnMut(u64, Tsc) -> bool) -> Result<u64> {
        let mut sent = 0;
        while !is_over(sent, Tsc::now()) && self.send_one()? {
            sent += 1;
            self.signal.add(1);
        }
        Ok(sent)
    }

    /// Runs the server, which replies to each message or discards it.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection fails.
    pub fn serve(&mut self, answers: bool) -> Result<()> {
        while self.receive_one()? && (!answers || self.send_one()?) {
            self.signal.add(1);
        }
        Ok(())
    }

    /// Sends a message. Returns `false` if the step was stopped before.
    #[inline]
    fn send_one(&mut self) -> Result<bool> {
        if self.message.len() > COPIED {
            return self.send_buffer();
        }
        loop {
            match self.worker.try_send(self.id, self.message) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.worker.poll(),
                Err(error) => return Err(error.into()),
            };
            if self.signal.has_stopped() {
                return Ok(false);
            }
        }
    }

    /// Sends a message from a registered buffer, as a program does that creates its messages in such a buffer.
    fn send_buffer(&mut self) -> Result<bool> {
        let mut buffer = self.worker.alloc(self.id, self.message.len());
        loop {
            match self.worker.try_send_buf(self.id, buffer) {
                Ok(()) => return Ok(true),
                Err((error, back)) if error.kind() == io::ErrorKind::WouldBlock => buffer = back,
                Err((error, _)) => return Err(error.into()),
            }
            self.worker.poll();
            if self.signal.has_stopped() {
                return Ok(false);
            }
        }
    }

    /// Receives a message. Returns `false` if the step was stopped before.
    #[inline]
    fn receive_one(&mut self) -> Result<bool> {
        loop {
            match self.worker.try_recv(self.id) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            // Until an event occurs, there is no message to receive.
            while self.worker.poll() == 0 {
                if self.signal.has_stopped() {
                    return Ok(false);
                }
                if self.sleeps_on_events {
                    self.worker.wait(TICK)?;
                }
            }
        }
    }
}
