//! The loop of all clients: each caller makes one call after the other.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The parameters of a client.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub size: usize,
    pub callers: usize,
    pub time: Duration,
}

/// The results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Calls per second.
    pub rate: f64,
    /// Microseconds.
    pub p50: f64,
    pub p99: f64,
    /// Microseconds of CPU time per call, of both processes.
    pub cpu: f64,
    /// The server's largest memory use, in megabytes.
    pub memory: f64,
}

impl Row {
    /// The rate and the quantiles, from the nanoseconds of each call.
    pub fn of(mut latencies: Vec<u32>, elapsed: Duration) -> Result<Self> {
        latencies.sort_unstable();
        let quantile = |part: f64| {
            let at = (part * latencies.len() as f64) as usize;
            latencies.get(at).map(|nanos| f64::from(*nanos) / 1e3).context("no call has completed")
        };
        let rate = latencies.len() as f64 / elapsed.as_secs_f64();
        Ok(Self { rate, p50: quantile(0.5)?, p99: quantile(0.99)?, ..Self::default() })
    }

    /// The median of each column.
    pub fn median(rows: &mut [Self]) -> Self {
        let mut middle = |column: fn(&Self) -> f64| {
            rows.sort_by(|left, right| column(left).total_cmp(&column(right)));
            rows.get(rows.len() / 2).map_or(0.0, column)
        };
        Self {
            rate: middle(|row| row.rate),
            p50: middle(|row| row.p50),
            p99: middle(|row| row.p99),
            cpu: middle(|row| row.cpu),
            memory: middle(|row| row.memory),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.rate, self.p50, self.p99)
    }
}

impl FromStr for Row {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [rate, p50, p99] = numbers[..] else { anyhow::bail!("the client printed {text:?}") };
        Ok(Self { rate, p50, p99, ..Self::default() })
    }
}

/// Runs the callers. `make` returns the function that makes a call.
pub async fn closed_loop<C, F>(job: &Job, make: impl Fn() -> C) -> Result<Row>
where
    C: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    // Warms up, so that pools and tables have their final size.
    callers(job, Duration::from_millis(200), &make).await?;
    let begun = Instant::now();
    let latencies = callers(job, job.time, &make).await?;
    Row::of(latencies, begun.elapsed())
}

/// Nanoseconds of each call.
async fn callers<C, F>(job: &Job, time: Duration, make: &impl Fn() -> C) -> Result<Vec<u32>>
where
    C: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let begun = Instant::now();
    let tasks: Vec<_> = (0..job.callers)
        .map(|_| {
            let mut call = make();
            tokio::spawn(async move {
                let mut latencies = Vec::with_capacity(1 << 16);
                while begun.elapsed() < time {
                    let at = Instant::now();
                    call().await?;
                    latencies.push(u32::try_from(at.elapsed().as_nanos()).unwrap_or(u32::MAX));
                }
                anyhow::Ok(latencies)
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    Ok(all)
}
