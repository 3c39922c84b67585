//! Simulates two workers, with delays on the links, short queues, little memory and lost links. The seed determines all
//! events.
//!
//! `TRESPASS_SEEDS` is the number of seeds to run, `TRESPASS_SEED` the first one; a failure prints its seed.

mod check;
mod link;
mod log;
mod node;
mod program;
mod rng;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::memory::Pool;

use node::{Path, World};
pub(crate) use rng::Rng;

/// The events of a simulated world, with their probabilities.
#[derive(Clone, Copy, Debug)]
struct Plan {
    pairs: usize,
    steps: u32,
    /// On average one of N steps ends a link; 0 means that none does.
    deaths: u32,
    /// Whether the programs close or shut down during the run.
    closes: bool,
    /// The side whose program never reads, although the other program does.
    deaf: Option<usize>,
}

fn plan(rng: &mut Rng) -> Plan {
    Plan {
        pairs: 1 + rng.below(3) as usize,
        steps: 50 + rng.below(300),
        deaths: if rng.one_in(4) { 40 } else { 0 },
        closes: rng.one_in(3),
        deaf: rng.one_in(3).then(|| rng.below(2) as usize),
    }
}

fn run(seed: u64, pools: &[Pool; 4]) {
    run_with(seed, pools, u32::MAX);
}

/// Runs a world. Before the step `pause`, all announced buffers are withdrawn. Returns the number of steps.
fn run_with(seed: u64, pools: &[Pool; 4], pause: u32) -> u32 {
    let mut rng = Rng::new(seed);
    let plan = plan(&mut rng);
    let mut world = World::new(&plan, pools, Path::Any, &mut rng);
    for step in 0..plan.steps {
        if step == pause {
            world.pause();
        }
        world.step(&plan, &mut rng);
        world.check();
    }
    world.drain(&plan, &mut rng);
    world.end(&mut rng);
    plan.steps
}

/// Runs two worlds with the same events. One of them may not use the short path.
fn compare(seed: u64, pools: &[Pool; 4]) {
    let mut rngs = [Rng::new(seed), Rng::new(seed)];
    let plan = rngs.each_mut().map(plan)[0];
    let paths = [Path::Short, Path::Long];
    let mut worlds = [0, 1].map(|at| World::new(&plan, &pools[2 * at..], paths[at], &mut rngs[at]));
    let mut both = |act: &dyn Fn(&mut World, &mut Rng)| {
        let [short, long] = &mut worlds;
        act(short, &mut rngs[0]);
        long.was_short = short.was_short;
        act(long, &mut rngs[1]);
        for (short, long) in short.observed().into_iter().zip(long.observed()) {
            assert_eq!(short, long, "the paths differ");
        }
    };
    (0..plan.steps).for_each(|_| both(&|world, rng| world.step(&plan, rng)));
    both(&|world, rng| world.drain(&plan, rng));
    worlds.into_iter().zip(&mut rngs).for_each(|(world, rng)| world.end(rng));
}

#[test]
fn seeds_keep_every_byte_and_every_buffer() {
    for_each_seed("seeds_keep", run);
}

#[test]
fn buffers_can_be_withdrawn_at_every_step() {
    let pools = [(); 4].map(|()| node::pool());
    for seed in 1..=10 {
        let steps = run_with(seed, &pools, u32::MAX);
        (0..steps).for_each(|pause| _ = run_with(seed, &pools, pause));
    }
}

#[test]
fn short_path_differs_from_the_long_one_only_in_speed() {
    for_each_seed("short_path", compare);
}

fn for_each_seed(name: &str, run: fn(u64, &[Pool; 4])) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("TRESPASS_SEED").unwrap_or(1);
    let count = number("TRESPASS_SEEDS").unwrap_or(if first == 1 { 2_000 } else { 1 });
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64).min(count);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let pools = [(); 4].map(|()| node::pool());
                (first + thread..first + count).step_by(threads as usize).for_each(|seed| one(seed, &pools, name, run));
            });
        }
    });
}

fn one(seed: u64, pools: &[Pool; 4], name: &str, run: fn(u64, &[Pool; 4])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, pools))) {
        // The panic's own message is on stderr already.
        let again = format!("TRESPASS_SEED={seed} cargo test -p trespass {name}");
        let text = format!("seed {seed} failed; repeat it with: {again}\n");
        assert!(std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).is_ok());
        resume_unwind(panic);
    }
}
