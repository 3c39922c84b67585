//! The table of times.

use std::fmt;
use std::time::Duration;

use super::step::{Span, Step};

/// One line for each step that was begun.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

#[derive(Debug)]
struct Row {
    step: Step,
    total: Duration,
    max: Duration,
    min: Duration,
    count: u32,
}

impl Table {
    /// Enters a step that took `total` for all connections.
    pub(crate) fn enter(&mut self, step: Step, total: Duration, spans: impl Iterator<Item = Span>) {
        let mut row = Row { step, total, max: Duration::ZERO, min: Duration::MAX, count: 0 };
        for took in spans.filter_map(Span::took) {
            row.max = row.max.max(took);
            row.min = row.min.min(took);
            row.count += 1;
        }
        self.0.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "step              total ms     max ms     min us  us / conn")?;
        self.0.iter().try_for_each(|row| row.fmt(f))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let min = if self.count == 0 { Duration::ZERO } else { self.min };
        let [total, max, min] = [self.total, self.max, min].map(|time| time.as_secs_f64() * 1e6);
        let each = total / f64::from(self.count.max(1));
        let name = self.step.name();
        writeln!(f, "{name:<13}: {:11.2}{:11.2}{min:11.2}{each:11.2}", total / 1e3, max / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn span(began: Instant, micros: u64) -> Span {
        Span { began: Some(began), ended: began.checked_add(Duration::from_micros(micros)) }
    }

    #[test]
    fn a_line_has_the_extremes_and_the_share_of_each_connection() {
        let now = Instant::now();
        let mut table = Table::default();
        let failed = Span { began: Some(now), ended: None };
        let spans = [span(now, 250), span(now, 1750), failed, Span::default()];
        table.enter(Step::CreateQueuePair, Duration::from_millis(3), spans.into_iter());
        table.enter(Step::Connect, Duration::from_micros(70), [failed].into_iter());
        assert_eq!(
            table.to_string(),
            "step              total ms     max ms     min us  us / conn\n\
             create qp    :        3.00       1.75     250.00    1500.00\n\
             connect      :        0.07       0.00       0.00      70.00\n"
        );
    }
}
