//! The comparison of all runs.

use std::fmt;

use super::table::{Row, Table};

/// The tables of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) theirs: Vec<Table>,
    pub(crate) ours: Vec<Table>,
}

/// For each step, the total of all connections, and the fastest connection. A ratio above 1 means that ours took
/// longer.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "|               | median, ms |         |       | best, ms  |         |       | fastest connection, us | |"
        )?;
        writeln!(
            f,
            "| step          | rdma-core  | sideway | ratio | rdma-core | sideway | ratio | rdma-core  | sideway |"
        )?;
        writeln!(
            f,
            "|---------------|-----------:|--------:|------:|----------:|--------:|------:|-----------:|--------:|"
        )?;
        for row in self.theirs.first().map(Table::rows).unwrap_or_default() {
            let total = |tables| sorted(tables, &row.name, |row| row.total_ms);
            let fastest = |tables| sorted(tables, &row.name, |row| row.min_us);
            let (theirs, ours) = (total(&self.theirs), total(&self.ours));
            let (medians, bests) = ([median(&theirs), median(&ours)], [best(&theirs), best(&ours)]);
            let fastest = [best(&fastest(&self.theirs)), best(&fastest(&self.ours))];
            writeln!(
                f,
                "| {:<13} | {:10.1} | {:7.1} | {:5.2} | {:9.1} | {:7.1} | {:5.2} | {:10.0} | {:7.0} |",
                row.name,
                medians[0],
                medians[1],
                medians[1] / medians[0],
                bests[0],
                bests[1],
                bests[1] / bests[0],
                fastest[0],
                fastest[1],
            )?;
        }
        Ok(())
    }
}

fn sorted(tables: &[Table], name: &str, value: impl Fn(&Row) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = tables.iter().filter_map(|table| table.row(name)).map(value).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn best(sorted: &[f64]) -> f64 {
    sorted.first().copied().unwrap_or(f64::NAN)
}

/// The middle value, or the mean of the two middle values.
fn median(sorted: &[f64]) -> f64 {
    let upper = sorted.get(sorted.len() / 2);
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2);
    match (lower, upper) {
        (Some(lower), Some(upper)) => f64::midpoint(*lower, *upper),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_two() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[1.0, 2.0, 7.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 7.0]), 3.0);
    }

    #[test]
    fn a_line_compares_the_totals() {
        let table = |total| Table::parse(&format!("connect : {total} 5.0 6.0 7.0")).unwrap();
        let report = Report { theirs: vec![table(3.0), table(2.0), table(9.0)], ours: vec![table(6.0), table(1.0)] };
        let text = report.to_string();
        let line = text.lines().last().unwrap();
        let words: Vec<&str> = line.split(['|', ' ']).filter(|word| !word.is_empty()).collect();
        assert_eq!(words, ["connect", "3.0", "3.5", "1.17", "2.0", "1.0", "0.50", "6", "6"], "{line}");
    }
}
