//! Compares the quiet results with limits and with an earlier mesh.

use std::collections::HashMap;

use super::cell::Cell;
use super::document::Document;
use super::judgement::{Changed, Missed};
use super::schedule::Mode;
use crate::plan::Plan;
use crate::report::compare::Comparison;
use crate::report::limits::Limits;
use crate::report::{Row, Series, verdict};

/// Returns the limits that the quiet cells miss. A size without a result misses all of them.
pub fn missed(cells: &[Cell], limits: &Limits, sizes: &[u64]) -> Vec<Missed> {
    let quiet = cells.iter().filter(|cell| cell.mode == Mode::Quiet);
    let of = |cell: &Cell| {
        let is_absent = |size: &&u64| !cell.rows.iter().any(|row| row.size == **size);
        let absent: Vec<_> = sizes.iter().filter(is_absent).copied().collect();
        let misses = limits.missed(&cell.rows, &absent, &[]);
        let (rail, from, to) = (cell.rail, cell.from, cell.to);
        let new = |miss| Missed { rail, from, to, miss: verdict::Missed::of(miss) };
        misses.iter().map(new).collect::<Vec<_>>()
    };
    quiet.flat_map(of).collect()
}

/// Checks whether meshes of these tests can be compared.
///
/// # Errors
///
/// Returns an error for the user if the tests differ, or have no size in common.
pub fn comparable(old: &Plan, new: &Plan) -> anyhow::Result<()> {
    let series = |name: &str, plan: &Plan| Series::of_plan(name, plan, Vec::new());
    Comparison::of(&series("the baseline", old), &series("this mesh", new), 0.0)?;
    let is_common = old.workload.sizes.iter().any(|size| new.workload.sizes.contains(size));
    anyhow::ensure!(is_common, "no size in common with the baseline; give one of its sizes with --msg-size");
    Ok(())
}

/// Compares quiet cells with those of an earlier mesh between ranks of the same labels and on rails of the same place.
/// Also returns the number of cells that have a result in the earlier mesh only, although both ranks are in this mesh.
///
/// # Errors
///
/// Returns an error for the user if the meshes measured different operations, or have no cell in common.
pub fn compared(old: &Document, new: &Document, threshold: f64) -> anyhow::Result<(Vec<Changed>, u64)> {
    let key = |document: &Document, cell: &Cell| {
        let label = |rank| document.label(rank).to_owned();
        (cell.rail, label(cell.from), label(cell.to))
    };
    let quiet = |document: &'_ Document| {
        document.cells.iter().filter(|cell| cell.mode == Mode::Quiet).cloned().collect::<Vec<_>>()
    };
    let before: HashMap<_, _> = quiet(old).into_iter().map(|cell| (key(old, &cell), cell)).collect();
    let series = |name: &str, plan: &Plan, rows: &[Row]| Series::of_plan(name, plan, rows.to_vec());
    comparable(&old.plan, &new.plan)?;
    let (mut changes, mut missing, mut has_partner) = (Vec::new(), 0, false);
    for cell in quiet(new) {
        let Some(partner) = before.get(&key(new, &cell)).filter(|partner| !partner.rows.is_empty()) else { continue };
        has_partner = true;
        if cell.rows.is_empty() {
            missing += 1;
            continue;
        }
        let (one, other) =
            (series("the baseline", &old.plan, &partner.rows), series("this mesh", &new.plan, &cell.rows));
        let comparison = Comparison::of(&one, &other, threshold)?;
        let (rail, from, to) = (cell.rail, cell.from, cell.to);
        changes.extend(verdict::Size::all(&comparison).map(|change| Changed { rail, from, to, change }));
    }
    anyhow::ensure!(has_partner, "no pair of hosts in common with the baseline; give a mesh of the same hosts");
    anyhow::ensure!(
        missing > 0 || !changes.is_empty(),
        "no size in common with the baseline; give one of its sizes with --msg-size"
    );
    Ok((changes, missing))
}
