//! What is made of the results.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::plan::values;

/// What is made of the results, besides the table.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Results")]
pub struct Output {
    /// Writes all results and all that they depend on as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Prints a line of JSON for each thing that happens, instead of the table: the start, each --interval of a size as it is over, each
    /// size, the end.
    #[arg(long)]
    pub json_stream: bool,
    /// Writes a line for each size, with all that it depends on in columns that are named as members of --json's environment are, such as
    /// client.numa_node.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draws the results over the sizes, as .svg or .png.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Compares with a run that --json has written, or with what a program of perftest has printed.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// With --compare: fails where a size is worse by more than this [default: 5].
    #[arg(long, value_name = "PERCENT", value_parser = values::positive)]
    pub threshold: Option<f64>,
    /// Fails where a size has less than so many gigabits a second. They are those that arrived, but for plain writes over UC, of which it
    /// is known where none did, and else those that were sent.
    #[arg(long, value_name = "GBPS", value_parser = values::positive)]
    pub min_gbps: Option<f64>,
    /// Fails where a size has less than so many million messages a second.
    #[arg(long, value_name = "MPPS", value_parser = values::positive)]
    pub min_mpps: Option<f64>,
    /// Fails where 99 % of the messages of a size are not within so many microseconds; other units may be written, such as 1ms.
    #[arg(long, value_name = "TIME", value_parser = values::microseconds)]
    pub max_p99: Option<Duration>,
}

impl Output {
    /// Whether the results are for others than who reads standard output.
    pub fn has_others(&self) -> bool {
        let files = [&self.json, &self.csv, &self.plot, &self.compare];
        let has_limits = self.min_gbps.is_some() || self.min_mpps.is_some() || self.max_p99.is_some();
        has_limits || files.into_iter().any(Option::is_some)
    }
}
