//! The results of a run.

use std::fmt;
use std::time::Duration;

/// The duration of a run.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// Messages in either direction.
    pub(super) iterations: u32,
    /// Bytes of a message.
    pub(super) size: u32,
    /// From the first message to the last.
    pub(super) time: Duration,
    /// The clock of the device, with --ts.
    pub(super) clock: Option<Clock>,
}

/// Times between two successive messages, in cycles of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    last: Option<u64>,
    shortest: Option<u64>,
    longest: u64,
    total: u128,
    count: u32,
    /// Cycles in a millisecond, if the device reports them.
    kilohertz: Option<u64>,
    /// A mask of the lowest bits, which are the width of the device's clock.
    mask: u64,
}

impl Clock {
    /// A clock with this frequency and these bits, if the device reports them.
    pub(super) fn new(kilohertz: Option<u64>, mask: Option<u64>) -> Self {
        let mask = mask.unwrap_or(u64::MAX);
        Self { last: None, shortest: None, longest: 0, total: 0, count: 0, kilohertz, mask }
    }

    /// Counts a message with this time of arrival.
    pub(super) fn tick(&mut self, now: u64) {
        if let Some(last) = self.last.replace(now) {
            // The clock wraps at its width; the higher bits of a timestamp are undefined.
            let cycles = now.wrapping_sub(last) & self.mask;
            self.shortest = Some(self.shortest.map_or(cycles, |shortest| shortest.min(cycles)));
            self.longest = self.longest.max(cycles);
            self.total += u128::from(cycles);
            self.count += 1;
        }
    }
}

/// The format of the C programs.
impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let bytes = u64::from(self.size) * u64::from(self.iterations) * 2;
        let iterations = self.iterations;
        writeln!(f, "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec", bytes as f64 * 8.0 / seconds / 1e6)?;
        let each = seconds * 1e6 / f64::from(iterations);
        writeln!(f, "{iterations} iters in {seconds:.2} seconds = {each:.2} usec/iter")?;
        let Some(clock) = self.clock else { return Ok(()) };
        let Some(shortest) = clock.shortest else {
            return writeln!(f, "too few messages: --ts measures the time between two");
        };
        let average = clock.total as f64 / f64::from(clock.count);
        let longest = clock.longest;
        writeln!(
            f,
            "cycles of the device between messages: at least {shortest}, at most {longest}, on average {average:.1}"
        )?;
        match clock.kilohertz {
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

    fn lines(clock: Option<Clock>) -> String {
        Statistics { iterations: 1000, size: 4096, time: Duration::from_millis(130), clock }.to_string()
    }

    const WITHOUT_CLOCK: &str =
        "8192000 bytes in 0.13 seconds = 504.12 Mbit/sec\n1000 iters in 0.13 seconds = 130.00 usec/iter\n";

    #[test]
    fn the_lines_have_the_format_of_the_c_program() {
        assert_eq!(lines(None), WITHOUT_CLOCK);
    }

    #[test]
    fn a_clock_wraps_at_its_width() {
        for (mask, times) in
            [(None, [u64::MAX - 4, 5, 25]), (Some((1 << 48) - 1), [(1 << 48) - 5, 5, 0xabcd << 48 | 25])]
        {
            let mut clock = Clock::new(Some(1000), mask);
            clock.tick(times[0]);
            assert!(lines(Some(clock)).ends_with("too few messages: --ts measures the time between two\n"));
            times[1..].iter().for_each(|&now| clock.tick(now));
            assert_eq!(
                lines(Some(clock)),
                format!(
                    "{WITHOUT_CLOCK}cycles of the device between messages: at least 10, at most 20, on average 15.0\nat 1000 kHz that is 15.00 usec on average\n"
                )
            );
        }
    }
}
