//! Reads the output of the perftest programs.

use super::{Row, Series};
use crate::plan::{Measure, Operation, Semantics, Transport};
use crate::stats::{Bandwidth, Figures, Latency};

/// Reads all tests in a text, with their rows. The text may contain bandwidth and latency tests of any perftest
/// version, with one or several sizes, limited by the number of messages or by time.
///
/// For bandwidth tests, only the average is read, because perftest's peak cannot be compared with an interval. The
/// maximum latency that perftest prints is the third or second longest, and its standard deviation is too small below a
/// microsecond. Both values are used as printed. Missing values are NaN.
pub fn read(text: &str, name: &str) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let mut title = Title::default();
    let mut columns = Vec::new();
    // Whether the next rows are one direction of a bidirectional test (`--report-both`). They are left out, because
    // their title and columns are those of both directions.
    let mut is_half = false;
    for line in text.lines() {
        if let Some(next) = Title::of(line) {
            title = next;
            columns.clear();
            is_half = false;
        } else if ["Local results:", "Remote results:"].contains(&line.trim()) {
            columns.clear();
            is_half = true;
        } else if let Some((_, rest)) = line.split_once("Connection type") {
            title.transport = service(rest);
        } else if line.trim_start().starts_with("#bytes") && !is_half {
            columns = head(line);
            all.push(title.series(name, &columns));
        } else if let Some(values) = numbers(line, columns.len()) {
            let row = row(&columns, &values);
            all.last_mut().into_iter().for_each(|series| series.rows.extend(row.clone()));
        }
    }
    all.retain(|series| !series.rows.is_empty());
    all
}

/// The contents of a title line such as `RDMA_Write BW Test`.
#[derive(Default)]
struct Title {
    operation: Option<Operation>,
    is_bidirectional: bool,
    transport: Option<Transport>,
}

impl Title {
    fn of(line: &str) -> Option<Self> {
        let line = line.trim();
        let is_title = line.ends_with("Test") && (line.contains(" BW ") || line.contains(" Latency "));
        is_title.then(|| Self {
            operation: KINDS.iter().find(|(text, _)| line.contains(text)).map(|kind| kind.1),
            is_bidirectional: line.contains("Bidirectional"),
            transport: None,
        })
    }

    fn series(&self, name: &str, columns: &[Column]) -> Series {
        // When a read or an atomic completes, its data has arrived, so the time is not halved.
        let semantics = if self.operation.is_some_and(Operation::fetches) { Semantics::Ack } else { Semantics::Oneway };
        let is_latency = columns.iter().any(|column| matches!(column, Column::P50 | Column::Mean));
        let measure = if is_latency { Measure::Latency(semantics) } else { Measure::Bandwidth };
        Series {
            name: name.to_owned(),
            operation: self.operation,
            hides_immediates: true,
            measure,
            transport: self.transport,
            is_bidirectional: (!is_latency).then_some(self.is_bidirectional),
            rows: Vec::new(),
        }
    }
}

/// Returns the transport, which follows `Connection type`.
fn service(text: &str) -> Option<Transport> {
    let word = text.trim_start_matches([' ', '\t', ':']).split_whitespace().next()?;
    let all = [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc, Transport::Dc, Transport::Srd];
    all.into_iter().find(|transport| transport.to_string() == word)
}

/// The operations by their names in titles. A title does not show whether immediate data was used.
const KINDS: [(&str, Operation); 5] = [
    ("RDMA_Write", Operation::Write),
    ("RDMA_Read", Operation::Read),
    ("Send", Operation::Send),
    ("FETCH_AND_ADD", Operation::FetchAdd),
    ("CMP_AND_SWAP", Operation::CompareSwap),
];

/// The kinds of columns in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Size,
    Count,
    /// 2^20 bytes per second. Older versions print the unit as `MB`.
    Mebibytes,
    Gigabits,
    /// 10^6 messages per second.
    MessageRate,
    Min,
    Max,
    P50,
    Mean,
    Stdev,
    P99,
    P99_9,
    /// A column that has no counterpart in a row.
    Other,
}

/// The texts of column heads. No text contains another one.
const HEADS: [(&str, Column); 18] = [
    ("#bytes", Column::Size),
    ("#iterations", Column::Count),
    ("BW peak[", Column::Other),
    ("BW average[MB/sec]", Column::Mebibytes),
    ("BW average[MiB/sec]", Column::Mebibytes),
    ("BW average[Gb/sec]", Column::Gigabits),
    ("MsgRate[Mpps]", Column::MessageRate),
    ("BW Port", Column::Other),
    ("MsgRate Port", Column::Other),
    // This column is left out, because it is the load of all processors of the machine, not of the program.
    ("CPU_Util[%]", Column::Other),
    ("t_min[usec]", Column::Min),
    ("t_max[usec]", Column::Max),
    ("t_typical[usec]", Column::P50),
    ("t_avg[usec]", Column::Mean),
    ("t_stdev[usec]", Column::Stdev),
    ("99% percentile[usec]", Column::P99),
    ("99.9% percentile[usec]", Column::P99_9),
    ("tps average", Column::Other),
];

/// Maximum number of columns that are read.
const COLUMNS: usize = 64;

/// Returns the columns of a header line, from left to right.
fn head(line: &str) -> Vec<Column> {
    let mut found: Vec<_> =
        HEADS.iter().flat_map(|&(text, column)| line.match_indices(text).map(move |(at, _)| (at, column))).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, column)| column).take(COLUMNS).collect()
}

/// Returns the numbers of a line. The line must contain only numbers, as many as there are columns or a few less. A
/// test that misses a limit (`-w`) prints an error at the end of the line.
fn numbers(line: &str, columns: usize) -> Option<Vec<f64>> {
    let line = line.split("Error:").next()?;
    let values: Vec<f64> = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    (values.len() >= 3 && values.len() <= columns).then_some(values)
}

fn row(columns: &[Column], values: &[f64]) -> Option<Row> {
    let of = |column| columns.iter().position(|found| *found == column).and_then(|at| values.get(at)).copied();
    let whole = |column| of(column).filter(|value| *value >= 0.0).map(|value| value as u64);
    let (size, count) = (whole(Column::Size)?, whole(Column::Count)?);
    let figures = match of(Column::P50).or_else(|| of(Column::Mean)) {
        Some(_) => Figures::Latency(latency(count, of)),
        None => Figures::Bandwidth(bandwidth(size, count, of)?),
    };
    Some(Row::new(size, figures))
}

fn latency(samples: u64, of: impl Fn(Column) -> Option<f64>) -> Latency {
    let nanoseconds = |column| of(column).map_or(f64::NAN, |microseconds| microseconds * 1000.0);
    Latency {
        samples,
        min: nanoseconds(Column::Min),
        mean: nanoseconds(Column::Mean),
        stdev: nanoseconds(Column::Stdev),
        p50: nanoseconds(Column::P50),
        p90: f64::NAN,
        p99: nanoseconds(Column::P99),
        p99_9: nanoseconds(Column::P99_9),
        p99_99: f64::NAN,
        max: nanoseconds(Column::Max),
        histogram: Vec::new(),
    }
}

/// Derives the length of the window from the number of messages and the rate. perftest prints two rates, of which the
/// more precise one is used.
fn bandwidth(size: u64, messages: u64, of: impl Fn(Column) -> Option<f64>) -> Option<Bandwidth> {
    let bytes = of(Column::Gigabits)
        .map(|gigabits| gigabits * 1e9 / 8.0)
        .or_else(|| of(Column::Mebibytes).map(|mebibytes| mebibytes * f64::from(1 << 20)))?;
    let by_bytes = bytes / size as f64;
    let by_messages = of(Column::MessageRate).unwrap_or(0.0) * 1e6;
    // Compares the relative precision of both rates. perftest prints the bandwidth with two decimals, and the message
    // rate with six.
    let printed = of(Column::Gigabits).or_else(|| of(Column::Mebibytes)).unwrap_or(0.0);
    let rate = if by_messages > 0.0 && 1.0 / by_messages < 0.01 / printed { by_messages } else { by_bytes };
    let seconds = if rate > 0.0 && rate.is_finite() { messages as f64 / rate } else { 0.0 };
    Some(Bandwidth { messages, seconds, ..Bandwidth::default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a page in the layout of the perftest programs, with the headers and numbers of a test.
    fn page(title: &str, head: &str, rows: &[&str]) -> String {
        let rule = "-".repeat(87);
        let rows = rows.join("\n ");
        format!(
            "{rule}\n                    {title} Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n \
             Mtu             : 4096[B]\n{rule}\n local address: LID 0000 QPN 0x0108 PSN 0x5a7f2e\n{rule}\n {head}\n {rows}\n{rule}\n"
        )
    }

    fn near(found: f64, expected: f64, share: f64) {
        assert!((found - expected).abs() <= share * expected, "{found} {expected}");
    }

    fn one(text: &str) -> Series {
        let all = read(text, "old");
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    #[test]
    fn bandwidth_is_read_in_all_units() {
        let rows = ["65536      5000             11660.10           11657.31\t\t   0.186517"];
        for unit in ["MB/sec", "MiB/sec"] {
            let head = format!("#bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]");
            let series = one(&page("RDMA_Write BW", &head, &rows));
            assert_eq!((series.operation, series.measure), (Some(Operation::Write), Measure::Bandwidth));
            near(series.rows[0].average().unwrap().mebibytes_per_second, 11657.31, 1e-5);
            assert_eq!(series.rows[0].bandwidth().unwrap().messages, 5000);
            assert_eq!(series.rows[0].size, 65536);
        }
        let head = "#bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]";
        let rows = [
            "2          5000           0.12               0.08   \t\t   5.021337",
            "8388608    5000           392.60   392.55  0.005849",
        ];
        let series = one(&page("RDMA_Read BW", head, &rows));
        assert_eq!(series.operation, Some(Operation::Read));
        near(series.rows[0].average().unwrap().messages_per_second, 5_021_337.0, 1e-9);
        near(series.rows[1].average().unwrap().gigabits_per_second, 392.55, 1e-9);
    }

    #[test]
    fn bandwidth_is_read_with_cpu_and_port_columns() {
        let head = "#bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]    CPU_Util[%]";
        let series = one(&page("Send Bidirectional BW", head, &["1024  1000 0.00  8.19  1.000000  12.50"]));
        near(series.rows[0].average().unwrap().messages_per_second, 1e6, 1e-9);
        assert_eq!((series.operation, series.is_bidirectional), (Some(Operation::Send), Some(true)));
        let head = "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]   BW Port1[MB/sec]   MsgRate Port1[Mpps]   BW Port2[MB/sec]   MsgRate Port2[Mpps]";
        let series = one(&page("RDMA_Write BW", head, &["1024 1000 0.00 976.56 1.000000 1 2 3 4"]));
        near(series.rows[0].average().unwrap().messages_per_second, 1e6, 1e-9);
    }

    #[test]
    fn halves_of_a_bidirectional_test_are_left_out() {
        let head = "#bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]";
        let rows = [
            "65536      1000             9.25            6731.05\t\t     0.107697",
            "",
            "Local results: ",
            head,
            "65536      1000             8.25            5443.68\t\t     0.087099",
            "",
            "Remote results: ",
            head,
            "65536      1000             1.02            1287.37\t\t     0.020598",
        ];
        let series = one(&page("RDMA_Write Bidirectional BW", head, &rows));
        assert_eq!(series.rows.len(), 1);
        near(series.rows[0].average().unwrap().messages_per_second, 107_697.0, 1e-5);
    }

    #[test]
    fn row_that_misses_a_limit_is_read() {
        let head = "#bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]";
        let rows = ["64  1000  12377.18  8780.14\t\t     0.140482Error: BW result is below bw limit"];
        assert_eq!(one(&page("RDMA_Write BW", head, &rows)).rows.len(), 1);
    }

    #[test]
    fn transport_is_read_from_its_line() {
        let head = "#bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]";
        let text = page("RDMA_Write BW", head, &["64 1000 0.00 8.19 1.000000"]);
        let of = |line: &str| one(&text.replacen(" Mtu ", &format!("{line}\n Mtu "), 1));
        let series = of(" Connection type : XRC\t\tUsing SRQ      : ON");
        assert_eq!((series.transport, series.is_bidirectional), (Some(Transport::Xrc), Some(false)));
        assert!(series.hides_immediates);
        assert_eq!([of(" Connection type : RawEth").transport, one(&text).transport], [None, None]);
    }

    #[test]
    fn latency_is_read_by_count() {
        let head = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ";
        let rows = [
            "2       1000          0.93           3.58         0.95     \t       0.96        \t0.05   \t\t1.06    \t\t3.58   ",
        ];
        let series = one(&page("RDMA_Write Latency", head, &rows));
        assert_eq!(series.measure, Measure::Latency(Semantics::Oneway));
        let latency = series.rows[0].latency().unwrap();
        let found = [latency.min, latency.max, latency.p50, latency.mean, latency.stdev, latency.p99, latency.p99_9];
        for (found, expected) in found.into_iter().zip([930.0, 3580.0, 950.0, 960.0, 50.0, 1060.0, 3580.0]) {
            near(found, expected, 1e-9);
        }
        assert_eq!(latency.samples, 1000);
        assert!(latency.p90.is_nan() && latency.p99_99.is_nan());
    }

    #[test]
    fn latency_is_read_from_old_versions_and_by_time() {
        let head = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]";
        assert_eq!(read(&page("Send Latency", head, &["2 1000 0.93 3.58 0.95"]), "old")[0].rows.len(), 1);
        let head = " #bytes        #iterations       t_avg[usec]    tps average";
        let series = one(&page("RDMA_Read Latency", head, &["2             4562818           2.19         456281.80"]));
        assert_eq!(series.measure, Measure::Latency(Semantics::Ack));
        let latency = series.rows[0].latency().unwrap();
        near(latency.mean, 2190.0, 1e-9);
        assert!(latency.p50.is_nan());
    }

    #[test]
    fn atomics() {
        let head = "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]";
        let of = |title: &str| one(&page(title, head, &["8 1000 10.30 4.45 \t\t 0.583748"])).operation;
        assert_eq!(of("Atomic FETCH_AND_ADD BW"), Some(Operation::FetchAdd));
        assert_eq!(of("Atomic CMP_AND_SWAP BW"), Some(Operation::CompareSwap));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_text_is_read(lines in prop::collection::vec(prop_oneof![
            "[ 0-9.e-]{0,40}",
            "\\PC{0,60}",
            Just("RDMA_Write BW Test".to_owned()),
            Just("#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]".to_owned()),
            Just("#bytes #iterations t_avg[usec] tps average".to_owned()),
        ], 0..12)) {
            for row in read(&lines.join("\n"), "any").iter().flat_map(|series| &series.rows) {
                prop_assert!(row.average().is_none_or(|rates| rates.messages_per_second.is_finite()), "{:?}", row);
            }
        }
    }

    #[test]
    fn several_tests_are_read_from_one_text() {
        let bandwidth = "#bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]";
        let latency = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ";
        let text = page("RDMA_Write BW", bandwidth, &["2 5000 7.30 7.25 3.801088", "4 5000 15.5 15.1 3.958374"])
            + &page("Send Latency", latency, &["2 1000 0.93 3.58 0.95 0.96 0.05 1.06 3.58"]);
        let all = read(&text, "old");
        let sizes: Vec<Vec<u64>> = all.iter().map(|series| series.rows.iter().map(|row| row.size).collect()).collect();
        assert_eq!(sizes, [vec![2, 4], vec![2]]);
    }

    #[test]
    fn other_texts_have_no_tests() {
        for text in
            ["", "1 2 3 4 5", "{\"a\": 5}", "#bytes\n1 2 3", "#bytes #iterations\n-1 5 7", "RDMA_Write BW Test\n"]
        {
            assert_eq!(read(text, "old"), [], "{text}");
        }
    }
}
