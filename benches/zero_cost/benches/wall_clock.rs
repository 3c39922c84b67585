//! The loops of zero_cost measured by time: `cargo bench -p sideway-zero-cost`. The results are published and never
//! fail a run: on a real device, most of the time is spent on work that this device does not do.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sideway_test_names::Folder;
use sideway_zero_cost::allocations::Counting;
use sideway_zero_cost::c;
use sideway_zero_cost::column::Column;
use sideway_zero_cost::work::{Interface, Task};

/// Each loop checks that it does not allocate.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds of a loop per iteration of criterion, so that the objects created before a loop do not count.
const ROUNDS: u64 = 1000;

fn loops(criterion: &mut Criterion) {
    let folder = Folder::new();
    c::compile(folder.path()).expect("the loops in C compile");
    for &interface in Interface::value_variants() {
        for &task in Task::value_variants() {
            let mut group = criterion.benchmark_group(format!("{interface:?}, {}", task.label()));
            group.throughput(Throughput::Elements(u64::from(task.requests())));
            for &column in Column::value_variants().iter().filter(|column| column.has(interface, task)) {
                group.bench_function(BenchmarkId::from_parameter(format!("{column:?}")), |bencher| {
                    bencher.iter_custom(|count| time(column, folder.path(), interface, task, count));
                });
            }
            group.finish();
        }
    }
}

/// The time of `count` times [`ROUNDS`].
fn time(column: Column, folder: &Path, interface: Interface, task: Task, count: u64) -> Duration {
    let started = Instant::now();
    column.run(folder, interface, task, count.saturating_mul(ROUNDS)).expect("the loop runs");
    started.elapsed().div_f64(ROUNDS as f64)
}

criterion_group! {
    name = all;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    targets = loops
}
criterion_main!(all);
