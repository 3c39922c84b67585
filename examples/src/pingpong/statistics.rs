//! What the program tells at the end.

use std::fmt;
use std::time::Duration;

/// How long it took.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// Messages in either direction.
    pub(super) iterations: u32,
    /// Bytes of each.
    pub(super) size: u32,
    /// From the first message to the last.
    pub(super) time: Duration,
    /// The device's clock, where it was asked for.
    pub(super) clock: Option<Clock>,
}

/// Times between two messages that arrived one after the other, in cycles of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    last: Option<u64>,
    shortest: Option<u64>,
    longest: u64,
    total: u128,
    count: u32,
    /// Cycles in a millisecond, where the device says.
    kilohertz: Option<u64>,
    /// The bits that the clock has, from the lowest on.
    mask: u64,
}

impl Clock {
    /// A clock of this many cycles in a millisecond and with these bits, where the device says.
    pub(super) fn new(kilohertz: Option<u64>, mask: Option<u64>) -> Self {
        let mask = mask.unwrap_or(u64::MAX);
        Self { last: None, shortest: None, longest: 0, total: 0, count: 0, kilohertz, mask }
    }

    /// A message arrived at this moment.
    pub(super) fn tick(&mut self, now: u64) {
        if let Some(last) = self.last.replace(now) {
            // The clock begins anew when its bits are used up; the higher bits of a timestamp tell nothing.
            let cycles = now.wrapping_sub(last) & self.mask;
            self.shortest = Some(self.shortest.map_or(cycles, |shortest| shortest.min(cycles)));
            self.longest = self.longest.max(cycles);
            self.total += u128::from(cycles);
            self.count += 1;
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let bytes = u64::from(self.size) * u64::from(self.iterations) * 2;
        let iterations = self.iterations;
        writeln!(f, "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec", bytes as f64 * 8.0 / seconds / 1e6)?;
        writeln!(
            f,
            "{iterations} iters in {seconds:.2} seconds = {:.2} usec/iter",
            seconds * 1e6 / f64::from(iterations)
        )?;
        self.clock.map_or(Ok(()), |clock| clock.fmt(f))
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(shortest) = self.shortest else {
            return writeln!(f, "too few messages for a time between two");
        };
        let average = self.total as f64 / f64::from(self.count);
        writeln!(
            f,
            "cycles of the device between messages: at least {shortest}, at most {}, on average {average:.1}",
            self.longest
        )?;
        match self.kilohertz {
            Some(kilohertz) => {
                writeln!(f, "at {kilohertz} kHz that is {:.2} usec on average", average * 1e3 / kilohertz as f64)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_of_the_c_program() {
        let statistics = Statistics { iterations: 1000, size: 4096, time: Duration::from_millis(130), clock: None };
        assert_eq!(
            statistics.to_string(),
            "8192000 bytes in 0.13 seconds = 504.12 Mbit/sec\n1000 iters in 0.13 seconds = 130.00 usec/iter\n"
        );
    }

    #[test]
    fn the_clock_may_wrap() {
        let mut clock = Clock::new(Some(1000), None);
        assert_eq!(clock.to_string(), "too few messages for a time between two\n");
        for now in [u64::MAX - 4, 5, 25] {
            clock.tick(now);
        }
        assert_eq!(
            clock.to_string(),
            "cycles of the device between messages: at least 10, at most 20, on average 15.0\nat 1000 kHz that is 15.00 usec on average\n"
        );
    }

    #[test]
    fn a_clock_of_48_bits_wraps_earlier() {
        let mut clock = Clock::new(None, Some((1 << 48) - 1));
        // The bits above the clock's own may be anything.
        for now in [(1 << 48) - 5, 5, 0xabcd << 48 | 25] {
            clock.tick(now);
        }
        assert_eq!(
            clock.to_string(),
            "cycles of the device between messages: at least 10, at most 20, on average 15.0\n"
        );
    }
}
