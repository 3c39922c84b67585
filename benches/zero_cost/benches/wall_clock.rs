//! The same loops by the clock: `cargo bench -p sideway-zero-cost`. Published and never a reason to fail: what the device does
//! not do is most of what a real one takes.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sideway_zero_cost::allocations::Counting;
use sideway_zero_cost::c;
use sideway_zero_cost::column::Column;
use sideway_zero_cost::work::{Interface, Task};

/// The loops see to it that they ask nothing of the heap.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds of a loop for each that criterion asks for: what is made before a loop is not to count.
const ROUNDS: u64 = 1000;

fn loops(criterion: &mut Criterion) {
    let folder = std::env::temp_dir().join(format!("zero_cost-clock-{}", std::process::id()));
    c::compile(&folder).expect("the loops in C compile");
    for &interface in Interface::value_variants() {
        for &task in Task::value_variants() {
            let mut group = criterion.benchmark_group(format!("{interface:?}, {}", task.words()));
            group.throughput(Throughput::Elements(u64::from(task.requests())));
            for &column in Column::value_variants().iter().filter(|column| column.has(interface, task)) {
                group.bench_function(BenchmarkId::from_parameter(format!("{column:?}")), |bencher| {
                    bencher.iter_custom(|count| time(column, &folder, interface, task, count));
                });
            }
            group.finish();
        }
    }
    // What is left there harms nobody.
    let _ = std::fs::remove_dir_all(&folder);
}

/// The time of so many rounds.
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
