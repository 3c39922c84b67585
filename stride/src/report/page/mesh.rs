//! A mesh: a heat map of all pairs, what is slow, and a table of the pairs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::html::Html;
use super::mesh_limits::Limits;
use crate::plan::{Measure, Plan};
use crate::report::json::FORMAT;
use crate::report::table::{Columns, Table};
use crate::report::{Row, Style, bytes_in_words, fixed};

/// Maximum number of ranks, of results of all pairs, and of cells in all heat maps.
const RANKS: usize = 512;
const RESULTS: usize = 100_000;
const CELLS: usize = 1_000_000;

/// Maximum length of a label in characters.
const LABEL: usize = 256;

/// With more ranks than this, the cells of the heat map have no numbers.
const DENSE: usize = 32;

/// The members of a mesh that the page shows; `schema/stride-perf-mesh.schema.json` describes them.
#[derive(Debug, Deserialize)]
pub(super) struct Mesh {
    format: u32,
    pub(super) time: String,
    command_line: Vec<String>,
    launcher: String,
    pub(super) plan: Plan,
    pub(super) ranks: Vec<Rank>,
    rails: Vec<String>,
    cells: Vec<Cell>,
    verdict: Verdict,
    pub(super) limits: Option<Limits>,
    pub(super) error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rank {
    label: String,
    error: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Quiet,
    Busy,
    Incast,
    Outcast,
}

#[derive(Debug, Deserialize)]
struct Cell {
    mode: Mode,
    rail: usize,
    from: usize,
    to: usize,
    rows: Vec<Row>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    findings: Vec<Finding>,
    noise_percent: Option<f64>,
    notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    certainty: String,
    text: String,
}

/// What the heat maps of a mode and size show.
struct Shown {
    /// The values by rail, sender and receiver.
    values: HashMap<(usize, usize, usize), f64>,
    /// The median over all rails, without failed cells. NaN if there is no value.
    median: f64,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Busy => "busy",
            Self::Incast => "incast",
            Self::Outcast => "outcast",
        }
    }
}

impl Mesh {
    /// Whether a text is a mesh of any version.
    pub(super) fn is_one(text: &str) -> bool {
        #[derive(Deserialize)]
        struct Head {
            kind: String,
        }
        let head = serde_json::Deserializer::from_str(text).into_iter::<Head>().next();
        head.is_some_and(|head| head.is_ok_and(|head| head.kind == "mesh"))
    }

    pub(super) fn read(text: &str) -> Result<Self> {
        let mut mesh: Self =
            serde_json::from_str(text).context("it is not a mesh of stride-perf, or it is truncated")?;
        ensure!(mesh.format == FORMAT, "its format is {}; this version reads format {FORMAT}", mesh.format);
        ensure!(mesh.ranks.len() <= RANKS, "it has {} ranks, and a page shows at most {RANKS}", mesh.ranks.len());
        // Each cell of the maps repeats the labels.
        mesh.ranks.iter_mut().map(|rank| &mut rank.label).chain(&mut mesh.rails).for_each(cut);
        let results = mesh.cells.iter().map(|cell| cell.rows.len().max(1)).sum::<usize>();
        ensure!(results <= RESULTS, "it has {results} results, and a page shows at most {RESULTS}");
        let maps = mesh.maps().len() * mesh.sizes().len() * mesh.ranks.len().pow(2);
        ensure!(maps <= CELLS, "its maps have {maps} cells, and a page shows at most {CELLS}; measure fewer sizes");
        let cells = mesh.cells.iter().map(|cell| [cell.from, cell.to, cell.rail]);
        let limits = mesh.limits.iter().flat_map(Limits::pairs);
        let (ranks, rails) = (mesh.ranks.len(), mesh.rails.len());
        let is_known = |[from, to, rail]: [usize; 3]| from.max(to) < ranks && rail < rails;
        ensure!(cells.chain(limits).all(is_known), "it names a rank or rail that it lacks");
        Ok(mesh)
    }

    /// Returns the cells of each mode and rail.
    fn maps(&self) -> BTreeMap<(Mode, usize), Vec<&Cell>> {
        let mut maps: BTreeMap<_, Vec<_>> = BTreeMap::new();
        self.cells.iter().for_each(|cell| maps.entry((cell.mode, cell.rail)).or_default().push(cell));
        maps
    }

    /// Returns all sizes that have results.
    fn sizes(&self) -> BTreeSet<u64> {
        self.cells.iter().flat_map(|cell| cell.rows.iter().map(|row| row.size)).collect()
    }

    /// Returns what the heat maps show, by mode and size.
    fn shown(&self) -> BTreeMap<(Mode, u64), Shown> {
        let none = || (HashMap::new(), Vec::new());
        let mut all: BTreeMap<_, (HashMap<_, _>, Vec<_>)> = BTreeMap::new();
        for cell in &self.cells {
            for (size, value) in cell.rows.iter().filter_map(|row| Some((row.size, self.value(row)?))) {
                let (values, whole) = all.entry((cell.mode, size)).or_insert_with(none);
                values.insert((cell.rail, cell.from, cell.to), value);
                whole.extend(cell.error.is_none().then_some(value));
            }
        }
        all.into_iter().map(|(at, (values, whole))| (at, Shown { values, median: median(whole) })).collect()
    }

    fn label(&self, rank: usize) -> &str {
        &self.ranks[rank].label
    }

    fn pair(&self, from: usize, to: usize, rail: usize) -> String {
        let rail = if self.rails.len() > 1 { format!(", {}", self.rails[rail]) } else { String::new() };
        format!("{} → {}{rail}", self.label(from), self.label(to))
    }

    /// Returns the value that a heat map shows: Gb/s, or microseconds.
    fn value(&self, row: &Row) -> Option<f64> {
        let value = match self.plan.workload.measure {
            Measure::Bandwidth => row.average().map(|rates| rates.gigabits_per_second),
            Measure::Latency(_) => row.latency().map(|latency| latency.middle() / 1000.0),
        };
        value.filter(|value| value.is_finite())
    }

    /// Appends the mesh with this number.
    pub(super) fn write(&self, html: &mut Html, name: &str, number: usize) {
        let unit = match self.plan.workload.measure {
            Measure::Bandwidth => "Gb/s",
            Measure::Latency(_) => "us, median",
        };
        html.add("<section class=\"mesh\"><h2>Mesh: {}</h2>\n", &[&name]);
        let title = format!("{}, {}", self.plan.title(), self.plan.attributes.transport);
        let rails = match self.rails.len() {
            1 => "1 rail".to_owned(),
            count => format!("{count} rails"),
        };
        let line = "<p>{}; {} ranks, {}, started by {}: ";
        html.add(line, &[&title, &self.ranks.len(), &rails, &self.launcher]);
        html.add("<code>{}</code></p>\n", &[&self.command_line.join(" ")]);
        self.findings(html);
        html.raw("<div class=\"two\"><div class=\"choice\" data-name=\"map\">\n");
        let (maps, sizes, shown) = (self.maps(), self.sizes(), self.shown());
        for ((mode, rail), cells) in &maps {
            // The map of the largest size is first. If no cell has results, its size is unknown.
            for size in if sizes.is_empty() { vec![0] } else { sizes.iter().rev().copied().collect() } {
                let label = format!("{}, {}, {}", mode.name(), self.rails[*rail], bytes_in_words(size));
                html.add("<section data-name=\"{}\"><h3>{} ({})</h3>\n", &[&label, &label, &unit]);
                let shown = shown.get(&(*mode, size));
                self.map(html, cells, shown, number);
                if let Some(median) = shown.map(|shown| shown.median).filter(|median| !median.is_nan()) {
                    let unit = unit.split(',').next().unwrap_or_default();
                    html.add("<p class=\"scale\">100 % = {} {}</p>\n", &[&fixed(median, 5, 3), &unit]);
                }
                html.raw("</section>\n");
            }
        }
        html.raw("<p class=\"scale\">Speed in percent of the median of all rails: ");
        for (class, text) in SCALE {
            html.add("<span class=\"{}\">{}</span> ", &[&class, &text]);
        }
        html.raw("<span class=\"fail\">✘ failed</span></p></div>\n");
        html.raw("<aside class=\"pair\" aria-live=\"polite\" hidden></aside></div>\n");
        let pair = |from, to, rail| self.pair(from, to, rail);
        self.limits.iter().for_each(|limits| limits.write(html, &pair));
        self.pairs(html, number);
        html.raw("</section>\n");
    }

    fn findings(&self, html: &mut Html) {
        html.raw("<ul>\n");
        let line = |html: &mut Html, text: &str| html.add("<li class=\"bad\">{}</li>\n", &[&text]);
        self.error.iter().for_each(|error| line(html, &format!("incomplete: {error}")));
        for rank in self.ranks.iter().filter(|rank| rank.error.is_some()) {
            line(html, &format!("{}: {}", rank.label, rank.error.as_deref().unwrap_or_default()));
        }
        for finding in &self.verdict.findings {
            html.add("<li><strong>{}</strong>: {}</li>\n", &[&finding.certainty, &finding.text]);
        }
        if let Some(percent) = self.verdict.noise_percent {
            html.add(
                "<li>Beyond the differences between hosts, pairs differ by {} % (standard deviation).</li>\n",
                &[&fixed(percent, 8, 2)],
            );
        }
        self.verdict.notes.iter().for_each(|note| html.add("<li>{}</li>\n", &[note]));
        html.raw("</ul>\n");
    }

    fn map(&self, html: &mut Html, cells: &[&Cell], shown: Option<&Shown>, number: usize) {
        let at: BTreeMap<_, _> = cells.iter().map(|&cell| ((cell.from, cell.to), cell)).collect();
        let dense = if self.ranks.len() > DENSE { " dense" } else { "" };
        html.add("<div class=\"scroll\"><table class=\"map{}\">\n<thead><tr><th>from ↓ to →</th>", &[&dense]);
        self.ranks.iter().for_each(|rank| html.add("<th><span>{}</span></th>", &[&rank.label]));
        html.raw("</tr></thead>\n<tbody>\n");
        for from in 0..self.ranks.len() {
            html.add("<tr><th scope=\"row\">{}</th>", &[&self.label(from)]);
            for to in 0..self.ranks.len() {
                let Some(cell) = at.get(&(from, to)) else {
                    html.raw("<td></td>");
                    continue;
                };
                let value = shown.and_then(|shown| Some((*shown.values.get(&(cell.rail, from, to))?, shown.median)));
                let (class, text) = match value {
                    Some((value, median)) => (self.class(value, median), fixed(value, 5, 1)),
                    None => ("fail", "✘".to_owned()),
                };
                let pair = format!("{number}-{from}-{to}");
                let link = "<td class=\"{}\"><a href=\"#p{}\" title=\"{}\">{}</a></td>";
                html.add(link, &[&class, &pair, &self.pair(from, to, cell.rail), &text]);
            }
            html.raw("</tr>\n");
        }
        html.raw("</tbody></table></div>\n");
    }

    /// Returns the class of a value, by how good it is compared with the median. The class is neutral if there is no
    /// median to compare with.
    fn class(&self, value: f64, median: f64) -> &'static str {
        if value == 0.0 {
            return "h0";
        }
        let ratio = match self.plan.workload.measure {
            Measure::Bandwidth => value / median,
            Measure::Latency(_) => median / value,
        };
        match ratio {
            _ if median == 0.0 || ratio.is_nan() => "h4",
            ..0.5 => "h0",
            ..0.7 => "h1",
            ..0.85 => "h2",
            ..0.95 => "h3",
            ..1.05 => "h4",
            ..1.15 => "h5",
            _ => "h6",
        }
    }

    /// Appends a table of all results. Each of its lines names its pair for the script.
    fn pairs(&self, html: &mut Html, number: usize) {
        let table = Table::new(self.plan.workload.measure, Columns { intervals: true, cpu: false }, Style::plain());
        html.raw("<details class=\"long\"><summary>All pairs</summary>\n<div class=\"scroll\"><table class=\"pairs\">\n<thead><tr>");
        html.raw("<th>From</th><th>To</th><th>Mode</th><th>Rail</th>");
        table.heads().for_each(|(name, unit)| html.add("<th>{} <small>{}</small></th>", &[&name, &unit]));
        html.raw("<th></th></tr></thead>\n<tbody>\n");
        let mut cells: Vec<_> = self.cells.iter().collect();
        cells.sort_by_key(|cell| (cell.from, cell.to, cell.rail, cell.mode));
        let mut last = None;
        for cell in cells {
            let pair = format!("{number}-{}-{}", cell.from, cell.to);
            let rows = cell.rows.iter().map(Some);
            for row in rows.chain((cell.rows.is_empty() || cell.error.is_some()).then_some(None)) {
                html.add("<tr data-pair=\"{}\"", &[&pair]);
                if last.replace((cell.from, cell.to)) != Some((cell.from, cell.to)) {
                    html.add(" id=\"p{}\"", &[&pair]);
                }
                let (from, to) = (self.label(cell.from), self.label(cell.to));
                html.add("><td>{}</td><td>{}</td>", &[&from, &to]);
                html.add("<td>{}</td><td>{}</td>", &[&cell.mode.name(), &self.rails[cell.rail]]);
                match row {
                    Some(row) => {
                        table.cells(row).for_each(|text| html.add("<td>{}</td>", &[&text]));
                        html.raw(if row.is_whole {
                            "<td></td></tr>\n"
                        } else {
                            "<td class=\"bad\">cut short</td></tr>\n"
                        });
                    }
                    None => {
                        let error = cell.error.as_deref().unwrap_or("nothing was measured");
                        let columns = table.heads().count() + 1;
                        html.add("<td class=\"bad error\" colspan=\"{}\">✘ {}</td></tr>\n", &[&columns, &error]);
                    }
                }
            }
        }
        html.raw("</tbody></table></div></details>\n");
    }
}

/// Shortens a label that is longer than any that this program writes.
fn cut(label: &mut String) {
    if let Some((end, _)) = label.char_indices().nth(LABEL) {
        label.truncate(end);
        label.push('…');
    }
}

/// Returns the median, which is NaN if there are no values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 0 => f64::midpoint(values[half - 1], values[half]),
        _ => values[half],
    }
}

/// The legend of a heat map.
const SCALE: [(&str, &str); 7] = [
    ("h0", "< 50"),
    ("h1", "50 – 70"),
    ("h2", "70 – 85"),
    ("h3", "85 – 95"),
    ("h4", "95 – 105"),
    ("h5", "105 – 115"),
    ("h6", "> 115"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../schema/mesh-example.json");

    const OTHER_RANK: &str = "{\"label\": \"other\", \"error\": null}";

    fn written(mesh: &Mesh) -> String {
        let mut html = Html::default();
        mesh.write(&mut html, "it", 0);
        html.into_text()
    }

    #[test]
    fn map_shows_each_pair_and_its_error() {
        assert!(Mesh::is_one(EXAMPLE) && !Mesh::is_one("{\"format\": 1}"));
        let mesh = Mesh::read(EXAMPLE).unwrap();
        let text = written(&mesh);
        let ranks = mesh.ranks.len();
        let quiet = text.split("<section").find(|part| part.contains("quiet, mlx5_0, 1 MiB")).unwrap();
        assert_eq!(quiet.matches("<td class=\"").count(), ranks * (ranks - 1));
        let slow = "<td class=\"h1\"><a href=\"#p0-3-1\" title=\"node4 → node2, mlx5_0\">1";
        assert!(quiet.contains(slow), "{quiet}");
        let other = text.split("<section").find(|part| part.contains("quiet, mlx5_1, 1 MiB")).unwrap();
        assert!(other.contains("<td class=\"fail\"><a href=\"#p0-4-1\""), "{other}");
        assert_eq!(text.matches(" id=\"p0-4-1\"").count(), 1);
        assert!(text.contains("✘ rank 4 (node5) left the mesh: it disconnected"));
        assert!(text.contains("<strong>likely</strong>: host node4 is slow"));
        assert!(text.contains("node3 → node4, mlx5_0, 1 MiB: 121.018 Gb/s (--min-gbps: 150.000 Gb/s)"));
    }

    #[test]
    fn slow_latencies_have_the_colours_of_slow_bandwidths() {
        let mut mesh = Mesh::read(EXAMPLE).unwrap();
        assert_eq!([10.0, 80.0, 100.0, 120.0].map(|value| mesh.class(value, 100.0)), ["h0", "h2", "h4", "h6"]);
        mesh.plan.workload.measure = Measure::Latency(crate::plan::Semantics::Ack);
        assert_eq!([300.0, 120.0, 100.0, 80.0].map(|value| mesh.class(value, 100.0)), ["h0", "h2", "h4", "h6"]);
    }

    #[test]
    fn maps_of_all_rails_have_one_reference() {
        let mut mesh = Mesh::read(EXAMPLE).unwrap();
        mesh.cells.iter_mut().filter(|cell| cell.rail == 1).flat_map(|cell| &mut cell.rows).for_each(|row| {
            let crate::stats::Figures::Bandwidth(bandwidth) = &mut row.figures else { panic!("a bandwidth") };
            bandwidth.messages /= 10;
        });
        let broken = mesh.cells.iter_mut().find(|cell| cell.rail == 0 && (cell.from, cell.to) == (1, 0)).unwrap();
        broken.error = Some("it broke".to_owned());
        let text = written(&mesh);
        let part = |name: &str| text.split("<section").find(|part| part.contains(name)).unwrap();
        let (good, slow) = (part("quiet, mlx5_0, 1 MiB"), part("quiet, mlx5_1, 1 MiB"));
        let reference = |part: &str| part.split("100 % = ").nth(1).unwrap().split('<').next().unwrap().to_owned();
        assert_eq!(reference(good), reference(slow));
        assert!(reference(good).ends_with(" Gb/s"), "{}", reference(good));
        assert!(
            slow.contains("\"h0\"") && ["h1", "h4", "h6"].iter().all(|class| !slow.contains(&format!("\"{class}\"")))
        );
        assert!(!good.contains("\"fail\""), "a failed cell shows what it measured: {good}");
    }

    #[test]
    fn long_labels_are_cut() {
        let long = "ü".repeat(LABEL + 1);
        let mesh = Mesh::read(&EXAMPLE.replace("\"node5\"", &format!("\"{long}\""))).unwrap();
        let text = written(&mesh);
        assert!(!text.contains(&long) && text.contains(&format!("{}…", "ü".repeat(LABEL))));
    }

    #[test]
    fn odd_values_have_a_class() {
        let mesh = Mesh::read(EXAMPLE).unwrap();
        let of = [(0.0, 100.0), (0.0, 0.0), (5.0, 0.0), (5.0, f64::NAN)];
        assert_eq!(of.map(|(value, median)| mesh.class(value, median)), ["h0", "h0", "h4", "h4"]);
        assert_eq!([vec![3.0, 1.0], vec![2.0, 9.0, 1.0]].map(median), [2.0, 2.0]);
    }

    #[test]
    fn unknown_rank_rail_or_format_is_an_error() {
        let error = |from: &str, to: &str| format!("{:#}", Mesh::read(&EXAMPLE.replacen(from, to, 1)).unwrap_err());
        let lacks = "it names a rank or rail that it lacks";
        assert_eq!(error("\"rail\": 0, \"from\": 1, \"to\": 4", "\"rail\": 0, \"from\": 1, \"to\": 5"), lacks);
        assert_eq!(error("\"rail\": 0, \"from\": 1", "\"rail\": 2, \"from\": 1"), lacks);
        assert_eq!(error("\"format\": 1", "\"format\": 9"), "its format is 9; this version reads format 1");
        let mut sizes = 0;
        let many = EXAMPLE.split("\"size_bytes\": 1048576").collect::<Vec<_>>();
        let many = many.iter().fold(String::new(), |all, part| {
            sizes += 1000;
            if all.is_empty() { (*part).to_owned() } else { format!("{all}\"size_bytes\": {sizes}{part}") }
        });
        assert!(Mesh::read(&many).is_ok(), "each cell has a size of its own");
        let more =
            many.replace("\"ranks\": [", &format!("\"ranks\": [{}", format!("{},", OTHER_RANK).repeat(RANKS - 5)));
        assert!(Mesh::read(&more).unwrap_err().to_string().starts_with("its maps have "));
        assert!(error("\"cells\"", "\"cel\"").starts_with("it is not a mesh of stride-perf, or it is truncated: "));
    }
}
