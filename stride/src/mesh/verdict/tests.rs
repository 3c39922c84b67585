use fastrand::Rng;

use super::*;
use crate::mesh::schedule::rounds;
use crate::report::sample;

fn ranks(count: Rank) -> Vec<RankInfo> {
    let rank = |rank| RankInfo {
        rank,
        label: format!("h{rank}"),
        host: Some(format!("h{rank}")),
        address: None,
        ports: Vec::new(),
        error: None,
    };
    (0..count).map(rank).collect()
}

/// Returns a number from a distribution that is almost normal, with mean 0 and standard deviation 1.
fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// Returns the verdict on a mesh whose noise has this standard deviation. `share` is the speed of a cell.
fn judged(
    count: Rank,
    rails: u32,
    noise: f64,
    seed: u64,
    is_latency: bool,
    share: &dyn Fn(u32, Rank, Rank) -> f64,
) -> Verdict {
    let mut random = Rng::with_seed(seed);
    let mut cells = Vec::new();
    for (round, number) in rounds(count, rails, &[Mode::Quiet], None).into_iter().zip(0..) {
        for (from, to) in round.pairs {
            let speed = share(round.rail, from, to) * (noise * normal(&mut random)).exp();
            let rows = match is_latency {
                false => vec![sample::bandwidth_row(1 << 20, (20_000.0 * speed) as u64)],
                true => vec![sample::latency_row(64, (2_000_000.0 / speed) as u64)],
            };
            let (mode, rail) = (round.mode, round.rail);
            cells.push(Cell { round: number, mode, rail, from, to, seconds: Some(1.0), rows, error: None });
        }
    }
    let rails: Vec<_> = (0..rails).map(|rail| format!("mlx5_{rail}")).collect();
    Verdict::of(&cells, &ranks(count), &rails, false)
}

const SIZES: [Rank; 5] = [4, 5, 8, 16, 33];
/// Returns how often a mesh of this size is tried. Large meshes take long.
fn seeds(count: Rank) -> std::ops::RangeInclusive<u64> {
    1..=(200 / u64::from(count * count)).clamp(1, 5)
}

const NOISE: [f64; 3] = [0.002, 0.02, 0.05];

#[test]
fn noise_alone_causes_no_finding() {
    for count in SIZES {
        for noise in NOISE.into_iter().chain([0.2]) {
            for seed in seeds(count) {
                let verdict = judged(count, 2, noise, seed, count < 16 && seed % 2 == 0, &|_, _, _| 1.0);
                assert_eq!(verdict.findings, [], "{count} ranks, noise {noise}, seed {seed}");
            }
        }
    }
}

/// Whether the only findings of meshes of all sizes are these.
#[track_caller]
fn assert_finds(what: What, ranks: &[Rank], rail: Option<u32>, share: &dyn Fn(u32, Rank, Rank) -> f64) {
    for count in SIZES {
        for noise in NOISE {
            for seed in seeds(count) {
                let verdict = judged(count, 2, noise, seed, count < 16 && seed % 2 == 0, share);
                let found: Vec<_> =
                    verdict.findings.iter().map(|found| (found.what, found.ranks.as_slice(), found.rail)).collect();
                assert_eq!(
                    found,
                    [(what, ranks, rail)],
                    "{count} ranks, noise {noise}, seed {seed}: {:?}",
                    verdict.findings
                );
            }
        }
    }
}

#[test]
fn slow_host_is_found() {
    assert_finds(What::Host, &[2], None, &|_, from, to| if from == 2 || to == 2 { 0.5 } else { 1.0 });
}

#[test]
fn slow_host_of_a_small_noisy_mesh_is_found() {
    // The results of four namespaces on a busy machine, of which one has a slow link.
    let results = [[0.0, 7.32, 1.89, 7.05], [9.15, 0.0, 2.0, 6.34], [1.89, 1.89, 0.0, 1.98], [5.5, 3.66, 1.89, 0.0]];
    let share = |_: u32, from: Rank, to: Rank| results[from as usize][to as usize] / 10.0;
    let verdict = judged(4, 1, 0.0, 1, false, &share);
    let found: Vec<_> = verdict.findings.iter().map(|found| (found.what, found.ranks[0], found.certainty)).collect();
    assert_eq!(found, [(What::Host, 2, Certainty::Possible)], "{verdict:?}");
}

#[test]
fn slow_sender_and_slow_receiver_are_found() {
    assert_finds(What::Sender, &[1], None, &|_, from, _| if from == 1 { 0.5 } else { 1.0 });
    assert_finds(What::Receiver, &[3], None, &|_, _, to| if to == 3 { 0.5 } else { 1.0 });
}

#[test]
fn slow_path_is_found() {
    assert_finds(What::Cable, &[3, 1], Some(1), &|rail, from, to| {
        if (rail, from, to) == (1, 3, 1) { 0.25 } else { 1.0 }
    });
}

#[test]
fn slow_port_of_a_host_names_the_rail() {
    assert_finds(What::Host, &[0], Some(1), &|rail, from, to| {
        if rail == 1 && (from == 0 || to == 0) { 0.5 } else { 1.0 }
    });
}

#[test]
fn slow_rail_is_found() {
    assert_finds(What::Rail, &[], Some(0), &|rail, _, _| if rail == 0 { 0.6 } else { 1.0 });
}

#[test]
fn small_differences_are_no_finding() {
    let verdict = judged(8, 1, 0.001, 7, false, &|_, from, _| if from == 2 { 0.95 } else { 1.0 });
    assert_eq!(verdict.findings, []);
}

#[test]
fn small_samples_are_named() {
    let slow = |_: u32, from: Rank, to: Rank| if from == 1 || to == 1 { 0.5 } else { 1.0 };
    let two = judged(3, 1, 0.01, 1, false, &slow);
    assert!(two.findings.is_empty() && two.notes[0].contains("too few"), "{two:?}");
    let four = judged(4, 1, 0.05, 1, false, &slow);
    assert!(four.is_small_sample && four.notes[0].contains("small"), "{four:?}");
    assert!(four.findings[0].certainty > Certainty::Certain, "{four:?}");
    let many = judged(16, 1, 0.01, 1, false, &slow);
    assert!(!many.is_small_sample && many.notes.is_empty());
    assert_eq!(many.findings[0].certainty, Certainty::Certain);
    assert_eq!(many.findings[0].text, "host h1 is slow: 50 % below the median, sending and receiving");
}

#[test]
fn failed_and_missing_cells_do_not_disturb_the_others() {
    let mut cells = Vec::new();
    for round in rounds(6, 1, &[Mode::Quiet], None) {
        for (from, to) in round.pairs {
            let is_failed = from == 5 || to == 5;
            let rows = if is_failed {
                Vec::new()
            } else {
                vec![sample::bandwidth_row(64, if from == 0 { 400 } else { 1000 })]
            };
            let error = is_failed.then(|| "no route".to_owned());
            cells.push(Cell { round: 0, mode: Mode::Quiet, rail: 0, from, to, seconds: None, rows, error });
        }
    }
    let verdict = Verdict::of(&cells, &ranks(6), &["default".to_owned()], false);
    let found: Vec<_> = verdict.findings.iter().map(|found| (found.what, found.ranks[0])).collect();
    assert_eq!(found, [(What::Failed, 5), (What::Sender, 0)]);
    assert_eq!(verdict.findings[0].text, "10 of 10 quiet tests of h5 failed: no route");
    let none = Verdict::of(&[], &ranks(4), &["default".to_owned()], false);
    assert_eq!((none.findings, none.noise_percent), (Vec::new(), None));
}

/// Returns quiet cells between 8 ranks, of which these are lost.
fn cells_without(lost: &[Rank]) -> (Vec<Cell>, Vec<RankInfo>) {
    let mut ranks = ranks(8);
    lost.iter().for_each(|rank| ranks[*rank as usize].error = Some("it left".to_owned()));
    let (mut cells, mut random) = (Vec::new(), Rng::with_seed(5));
    for (from, to) in rounds(8, 1, &[Mode::Quiet], None).into_iter().flat_map(|round| round.pairs) {
        let is_lost = lost.contains(&from) || lost.contains(&to);
        let messages = (20_000.0 * (0.05 * normal(&mut random)).exp()) as u64;
        let rows = if is_lost { Vec::new() } else { vec![sample::bandwidth_row(64, messages)] };
        let error = is_lost.then(|| "no route".to_owned());
        cells.push(Cell { round: 0, mode: Mode::Quiet, rail: 0, from, to, seconds: None, rows, error });
    }
    (cells, ranks)
}

#[test]
fn lost_ranks_accuse_no_other() {
    for lost in [&[7][..], &[4, 5, 6, 7], &[3, 4, 5, 6, 7]] {
        let (cells, ranks) = cells_without(lost);
        let verdict = Verdict::of(&cells, &ranks, &["default".to_owned()], false);
        let found: Vec<_> = verdict.findings.iter().map(|found| (found.what, found.ranks[0])).collect();
        let expected: Vec<_> = lost.iter().map(|rank| (What::Failed, *rank)).collect();
        assert_eq!(found, expected, "{:?}", verdict.findings);
        assert_eq!(verdict.noise_percent.is_some(), lost.len() < 5);
        assert_eq!(verdict.notes.iter().any(|note| note.contains("no verdict: 3 ranks")), lost.len() == 5);
        // The smallest residuals count only if there are fewer ranks than the estimate assumes.
        assert!(verdict.noise_percent.is_none_or(|noise| noise > 1.0), "{:?}", verdict.noise_percent);
    }
}

#[test]
fn hosts_that_are_fast_among_themselves_are_one_finding() {
    for (count, small) in [(16, 4), (16, 6), (12, 3), (8, 2)] {
        for noise in [0.002, 0.02] {
            for seed in 1..=5 {
                let is_latency = seed % 2 == 0;
                let share = |_: u32, from: Rank, to: Rank| if (from < small) == (to < small) { 1.0 } else { 0.5 };
                let verdict = judged(count, 2, noise, seed, is_latency, &share);
                let found: Vec<_> = verdict.findings.iter().map(|found| (found.what, found.ranks.clone())).collect();
                assert_eq!(found, [(What::Group, (0..small).collect::<Vec<_>>())], "{count}, {small}, {noise}, {seed}");
            }
        }
    }
    let slow = |_: u32, from: Rank, to: Rank| if from.min(to) < 2 { 0.5 } else { 1.0 };
    let verdict = judged(16, 1, 0.01, 1, false, &slow);
    assert_eq!(verdict.findings.iter().map(|found| found.what).collect::<Vec<_>>(), [What::Host; 2]);
}

#[test]
fn latencies_are_above_the_median() {
    let slow = |_: u32, from: Rank, to: Rank| if from == 1 || to == 1 { 0.5 } else { 1.0 };
    let verdict = judged(16, 1, 0.01, 1, true, &slow);
    let text = &verdict.findings[0].text;
    let percent: f64 = text.split("latency is ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((95.0..105.0).contains(&percent) && text.contains("% above the median"), "{text}");
}

#[test]
fn both_directions_at_once_name_no_sender() {
    let mut cells = cells_without(&[]).0;
    for cell in cells.iter_mut().filter(|cell| cell.from == 1) {
        cell.rows = vec![sample::bandwidth_row(64, 5_000)];
    }
    let found = |is_both| Verdict::of(&cells, &ranks(8), &["default".to_owned()], is_both).findings;
    assert_eq!(found(false).iter().map(|found| found.what).collect::<Vec<_>>(), [What::Sender]);
    assert_eq!(found(true), []);
}

#[test]
fn busy_results_are_compared_with_quiet_ones() {
    let cell = |mode, messages| Cell {
        round: 0,
        mode,
        rail: 0,
        from: 0,
        to: 1,
        seconds: None,
        rows: vec![sample::bandwidth_row(64, messages)],
        error: None,
    };
    let verdict =
        Verdict::of(&[cell(Mode::Quiet, 1000), cell(Mode::Busy, 500)], &ranks(2), &["default".to_owned()], false);
    assert_eq!(verdict.busy_percent, Some(50.0));
}
