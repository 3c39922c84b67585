//! The table that both programs print.

/// The times of one run.
#[derive(Debug)]
pub(crate) struct Table(Vec<Row>);

/// The times of one step.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) total_ms: f64,
    pub(crate) min_us: f64,
}

impl Table {
    /// Parses the table in the text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rows: Vec<Row> = text.lines().filter_map(Row::parse).collect();
        (!rows.is_empty()).then_some(Self(rows))
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.0
    }

    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.name == name)
    }
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<f64> = numbers.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let &[total_ms, _, min_us, _] = numbers.as_slice() else { return None };
        Some(Self { name: name.trim_end().to_owned(), total_ms, min_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_outside_the_table_are_ignored() {
        let text = "connecting\n\
                    step              total ms     max ms     min us  us / conn\n\
                    create id    :        2.22       0.52       6.00      22.21\n\
                    event: RDMA_CM_EVENT_REJECTED, error: 8\n\
                    resolve addr :        8.09       6.92    2490.00      80.92\n";
        let table = Table::parse(text).unwrap();
        assert_eq!(table.rows().len(), 2);
        assert_eq!(
            table.row("resolve addr"),
            Some(&Row { name: "resolve addr".into(), total_ms: 8.09, min_us: 2490.0 })
        );
        assert!(table.row("connect").is_none());
        assert!(Table::parse("connecting\n").is_none());
    }
}
