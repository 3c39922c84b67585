//! Tukey's median polish: separates a matrix into a common value, effects of rows and columns, and residuals.

/// Number of repetitions. The effects change little after the first few.
const REPETITIONS: usize = 10;

/// A matrix whose values are the sum of a common value, an effect of the row, an effect of the column and a residual.
#[derive(Clone, Debug)]
pub(super) struct Polish {
    /// The common value.
    pub(super) common: f64,
    /// The effects of the rows.
    pub(super) rows: Vec<f64>,
    /// The effects of the columns.
    pub(super) columns: Vec<f64>,
    /// The residuals, `None` for missing values.
    pub(super) residuals: Vec<Vec<Option<f64>>>,
}

impl Polish {
    /// Separates a square matrix, in which values can be missing.
    pub(super) fn of(matrix: &[Vec<Option<f64>>]) -> Self {
        let count = matrix.len();
        let (mut rows, mut columns) = (vec![0.0; count], vec![0.0; count]);
        let (mut common, mut residuals) = (0.0, matrix.to_vec());
        for _ in 0..REPETITIONS {
            for (row, effect) in residuals.iter_mut().zip(&mut rows) {
                let found = median(row.iter().flatten().copied()).unwrap_or_default();
                row.iter_mut().flatten().for_each(|value| *value -= found);
                *effect += found;
            }
            for (at, effect) in columns.iter_mut().enumerate() {
                let found = median(residuals.iter().filter_map(|row| row[at])).unwrap_or_default();
                residuals.iter_mut().filter_map(|row| row[at].as_mut()).for_each(|value| *value -= found);
                *effect += found;
            }
            common += center(&mut rows, matrix) + center(&mut columns, matrix);
        }
        Self { common, rows, columns, residuals }
    }

    /// Returns the number of values in excess of the number of effects.
    pub(super) fn freedom(&self) -> usize {
        let count = self.residuals.iter().flatten().flatten().count();
        count.saturating_sub((2 * self.rows.len()).saturating_sub(1))
    }

    /// Returns the standard deviation of the noise, estimated from the residuals. As many residuals as there are
    /// effects are close to zero whatever the noise is, so the smallest ones do not count.
    pub(super) fn noise(&self) -> Option<f64> {
        let mut all: Vec<_> = self.residuals.iter().flatten().flatten().map(|value| value.abs()).collect();
        all.sort_by(f64::total_cmp);
        median(all.into_iter().skip((2 * self.rows.len()).saturating_sub(1))).map(|median| median * SIGMA)
    }
}

/// Ratio of the standard deviation to the median absolute deviation of a normal distribution.
pub(super) const SIGMA: f64 = 1.4826;

/// Subtracts the median of the effects from each of them, and returns it. A rank without values has no effect.
fn center(effects: &mut [f64], matrix: &[Vec<Option<f64>>]) -> f64 {
    let has_values =
        |at: usize| matrix[at].iter().flatten().next().is_some() || matrix.iter().any(|row| row[at].is_some());
    let values = || (0..effects.len()).filter(|&at| has_values(at));
    let middle = median(values().map(|at| effects[at])).unwrap_or_default();
    let values: Vec<_> = values().collect();
    values.into_iter().for_each(|at| effects[at] -= middle);
    middle
}

/// Returns the median, or `None` if there are no values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<_> = values.into_iter().collect();
    all.sort_by(f64::total_cmp);
    let high = *all.get(all.len() / 2)?;
    let low = *all.get((all.len() - 1) / 2)?;
    Some(f64::midpoint(low, high))
}

/// Returns the median absolute deviation from the median.
pub(super) fn deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values.iter().copied())?;
    median(values.iter().map(|value| (value - middle).abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_and_odd_counts() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
        assert_eq!(deviation(&[1.0, 2.0, 3.0, 100.0]), Some(1.0));
    }

    #[test]
    fn effects_of_a_row_and_of_a_cell_are_separated() {
        let count = 6;
        let value = |from: usize, to: usize| match (from, to) {
            _ if from == to => None,
            (2, _) => Some(2.0),
            (4, 5) => Some(1.0),
            _ => Some(3.0),
        };
        let matrix: Vec<Vec<_>> = (0..count).map(|from| (0..count).map(|to| value(from, to)).collect()).collect();
        let polish = Polish::of(&matrix);
        assert!((polish.rows[2] + 1.0).abs() < 1e-9 && polish.rows[4].abs() < 1e-9, "{polish:?}");
        assert!((polish.residuals[4][5].unwrap() + 2.0).abs() < 1e-9, "{polish:?}");
        assert!(polish.columns.iter().all(|effect| effect.abs() < 1e-9));
        assert_eq!((polish.noise(), polish.common, polish.freedom()), (Some(0.0), 3.0, 30 - 11));
    }
}
