//! Output options.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::plan::values;

/// Output options.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Results")]
pub struct Output {
    /// Write all results and their environment as JSON.
    ///
    /// `schema/stride-perf.schema.json` in the source tree describes each member.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Print a line of JSON per event instead of the table.
    ///
    /// There is an event for the start, for each --interval of a size, for each size, and for the end. A test that
    /// could not start prints one line, `end`, with `error`.
    #[arg(long, hide_short_help = true)]
    pub json_stream: bool,
    /// Write a CSV file, one line per size.
    ///
    /// The columns are: the figures, the semantics of the latency, the number of messages per completion, the counter
    /// changes (`name=change`, separated by spaces), and every member of JSON's `environment`. Columns of the
    /// environment are named by the path of the member, such as `plan.queue_pairs` and `client.numa_node`. All
    /// bandwidth tests have the same columns, and so do all latency tests. A null value is written as an empty field,
    /// and a list as JSON. If a value can be a word or an object, one column contains the word and others contain the
    /// members of the object (`client.memory`, `client.memory.cuda`). If the file is already open, such as /dev/stdout,
    /// the lines are appended; other files are overwritten.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub csv: Option<PathBuf>,
    /// Draw the results by size, as .svg or .png.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub plot: Option<PathBuf>,
    /// Compare with a file from --json, or with output of perftest.
    ///
    /// The baseline must have the same operation, transport and directions, and at least one size in common. Other
    /// differences between the tests are listed.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Largest loss that --compare accepts, in percent [default: 5].
    ///
    /// If a size is worse by more than this, the exit status is 3.
    #[arg(long, value_name = "PERCENT", value_parser = values::positive, hide_short_help = true)]
    pub threshold: Option<f64>,
    /// Fail if a size is slower than this, in Gb/s.
    ///
    /// The limit applies to the data that arrived. For plain writes over UC, the limit applies to the data sent, unless
    /// nothing arrived.
    #[arg(long, value_name = "GBPS", value_parser = values::positive, hide_short_help = true)]
    pub min_gbps: Option<f64>,
    /// Fail if a size has fewer million messages a second than this.
    #[arg(long, value_name = "MPPS", value_parser = values::positive, hide_short_help = true)]
    pub min_mpps: Option<f64>,
    /// Fail if the 99th percentile exceeds this, in us or with a unit.
    #[arg(long, value_name = "TIME", value_parser = values::microseconds, hide_short_help = true)]
    pub max_p99: Option<Duration>,
}

impl Output {
    /// Whether results are also written to files, or compared with limits.
    pub fn has_other_outputs(&self) -> bool {
        let files = [&self.json, &self.csv, &self.plot, &self.compare];
        let has_limits = self.min_gbps.is_some() || self.min_mpps.is_some() || self.max_p99.is_some();
        has_limits || files.into_iter().any(Option::is_some)
    }
}
