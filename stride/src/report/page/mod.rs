//! A page with charts and tables of runs: one HTML file without links to other files.
//!
//! The page is complete without its script. The script adds descriptions under the pointer, the choice of a size, and
//! the switch between light and dark. The page's content security policy admits only this script.

mod chart;
mod figures;
mod html;
mod mesh;
mod mesh_limits;
mod tables;

use super::json::Document;
use super::{Series, series};
use anyhow::{Result, ensure};

use self::html::Html;
use self::mesh::Mesh;

/// Maximum number of runs on a page.
pub const RUNS: usize = 32;

/// Maximum number of rows of a run, and of the bins and intervals of its rows.
const ROWS: usize = 1000;
const VALUES: usize = 2_000_000;

/// A run on the page.
#[derive(Debug)]
pub struct Run {
    name: String,
    results: Results,
}

#[derive(Debug)]
enum Results {
    Document(Box<Document>),
    /// Output of perftest, which can contain several tests.
    Perftest(Vec<Series>),
    Mesh(Box<Mesh>),
}

impl Run {
    /// Reads a run, which is JSON of this program, of a test or a mesh, or output of perftest's programs.
    ///
    /// # Errors
    ///
    /// Returns an error for the user if the text has neither format, or is too large for a page.
    pub fn read(text: &str, name: &str) -> Result<Self> {
        let results = if Mesh::is_one(text) {
            Results::Mesh(Box::new(Mesh::read(text)?))
        } else if text.trim_start().starts_with('{') {
            Results::Document(Box::new(Document::read(text)?))
        } else {
            Results::Perftest(series(text, name)?)
        };
        let run = Self { name: name.to_owned(), results };
        let rows: Vec<_> = run.series().into_iter().flat_map(|one| one.rows).collect();
        ensure!(rows.len() <= ROWS, "it has {} rows, and a page shows at most {ROWS}", rows.len());
        let bins = rows.iter().filter_map(|row| row.latency()).map(|latency| latency.histogram.len());
        let intervals = rows.iter().filter_map(|row| row.bandwidth()).map(|bandwidth| bandwidth.intervals.len());
        let values = bins.chain(intervals).sum::<usize>();
        ensure!(values <= VALUES, "it has {values} bins or intervals, and a page shows at most {VALUES}");
        Ok(run)
    }

    fn document(&self) -> Option<&Document> {
        match &self.results {
            Results::Document(document) => Some(document),
            Results::Perftest(_) | Results::Mesh(_) => None,
        }
    }

    /// Returns the series of the run. If it has several, their names contain a number.
    fn series(&self) -> Vec<Series> {
        match &self.results {
            Results::Document(document) => vec![document.series(&self.name)],
            Results::Mesh(_) => Vec::new(),
            Results::Perftest(all) if all.len() == 1 => all.clone(),
            Results::Perftest(all) => {
                let numbered =
                    |(at, one): (usize, &Series)| Series { name: format!("{} #{}", one.name, at + 1), ..one.clone() };
                all.iter().enumerate().map(numbered).collect()
            }
        }
    }
}

const STYLE: &str = include_str!("page.css");
const DARK: &str = include_str!("dark.css");
const SCRIPT: &str = include_str!("page.js");

/// The hash of [`SCRIPT`] for the content security policy: `openssl dgst -sha256 -binary page.js | base64`.
const SCRIPT_HASH: &str = "sha256-SmKpa8JWyteNceoN5F4VvdwPwEfpRxgtc6BHGgnIkNI=";

/// Returns the page as HTML.
pub fn page(runs: &[Run]) -> String {
    let mut html = Html::default();
    let names: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
    html.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
                  script-src '{}'; base-uri 'none'; form-action 'none'\">\n";
    html.add(policy, &[&SCRIPT_HASH]);
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.add("<title>{} - stride-perf</title>\n<style>\n", &[&names.join(", ")]);
    html.raw(STYLE);
    html.raw("</style>\n<style id=\"dark\" media=\"screen and (prefers-color-scheme: dark)\">\n");
    html.raw(DARK);
    html.raw("</style>\n</head>\n<body>\n<header><h1>stride-perf</h1>");
    html.raw("<button type=\"button\" id=\"theme\" hidden>Light or dark</button></header>\n<main>\n");
    tables::runs(&mut html, runs);
    for (number, run) in runs.iter().enumerate() {
        if let Results::Mesh(mesh) = &run.results {
            mesh.write(&mut html, &run.name, number);
        }
    }
    let series: Vec<_> = runs.iter().flat_map(Run::series).collect();
    html.raw("<div class=\"charts\">\n");
    figures::write(&mut html, &series);
    html.raw("</div>\n");
    tables::hints(&mut html, runs);
    tables::verdicts(&mut html, runs);
    tables::results(&mut html, runs);
    tables::environments(&mut html, runs);
    html.raw("</main>\n<div id=\"tip\" hidden></div>\n<script>");
    html.raw(SCRIPT);
    html.raw("</script>\n</body>\n</html>\n");
    html.into_text()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use sha2::Digest;

    use super::*;
    use crate::plan::{Measure, Semantics};
    use crate::report::limits::Limits;
    use crate::report::sample;
    use crate::report::verdict::Verdict;

    fn document(text: &str) -> Document {
        let mut environment = sample::environment(Measure::Latency(Semantics::Ack));
        (environment.client.host, environment.server.device) = (text.to_owned(), text.to_owned());
        (environment.command_line, environment.time) = (vec![text.to_owned()], text.to_owned());
        let mut document = Document::new(environment, vec![sample::latency_row(2, 1500)], vec![text.to_owned()]);
        let misses = Limits { max_p99: Some(1.0), ..Limits::default() }.missed(&document.rows, &[], &[]);
        document.verdict = Some(Verdict::new(&misses, None));
        document
    }

    fn read(document: &Document, name: &str) -> Run {
        Run::read(&sample::written(|out| document.write(out)), name).unwrap()
    }

    /// A text that runs a script if any of its letters is not escaped where it is used.
    const HOSTILE: &str = "</title></style></script>\"'><img src=x onerror=alert(1)><script>alert(2)</script>";

    #[test]
    fn text_of_a_run_is_escaped_everywhere() {
        let mut failed = document(HOSTILE);
        failed.error = Some(HOSTILE.to_owned());
        let mesh = include_str!("../../../schema/mesh-example.json");
        let quoted = serde_json::to_string(HOSTILE).unwrap();
        let parts = ["\"node5\"", "\"mlx5_0\"", "\"slurm\"", "\"it disconnected\"", "\"certain\"", "\"--min-gbps\""];
        let mesh = parts.iter().fold(mesh.to_owned(), |text, part| text.replace(part, &quoted));
        let perftest =
            format!("Send BW Test\n Connection type : {HOSTILE}\n#bytes #iterations BW average[MB/sec]\n64 10 1.0\n");
        let runs = [
            read(&document(HOSTILE), HOSTILE),
            read(&failed, HOSTILE),
            Run::read(&mesh, HOSTILE).unwrap(),
            Run::read(&perftest, HOSTILE).unwrap(),
        ];
        let text = page(&runs);
        assert!(text.matches("onerror=alert").count() > 20, "{text}");
        for (part, count) in
            [("<script", 1), ("<img", 0), ("</title>", text.matches("<title>").count()), ("</style>", 2)]
        {
            assert_eq!(text.matches(part).count(), count, "{part}");
        }
    }

    #[test]
    fn page_has_no_outward_link() {
        let text = page(&[read(&document("it"), "it")]);
        for part in ["http:", "https:", "url(", "src=", "@import", "<link"] {
            assert!(!text.contains(part), "{part}");
        }
    }

    #[test]
    fn script_is_the_one_that_the_policy_admits() {
        let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(SCRIPT));
        assert_eq!(SCRIPT_HASH, format!("sha256-{hash}"));
    }

    #[test]
    fn page_shows_tables_without_its_script() {
        let text = page(&[read(&document("a hint"), "one"), read(&document("another"), "two")]);
        let p99 = sample::latency_row(2, 1500).latency().map_or(0.0, |latency| latency.p99 / 1000.0);
        let missed = format!("<td>--max-p99</td><td>1.000 us</td><td class=\"bad\">✘ {p99:.3} us</td>");
        for part in [
            "<td class=\"bad\">✘ limits missed</td>",
            &missed,
            "<li><strong>two</strong>: another</li>",
            "<th>p99.9 <small>us</small></th>",
            "<tr class=\"differs\"><th scope=\"row\">client: host</th><td>a hint</td><td>another</td></tr>",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("<section hidden") && !text.contains("<figure hidden"));
    }

    #[test]
    fn settings_of_all_runs_are_listed() {
        let (mut one, mut two) = (document("it"), document("it"));
        (one.environment.client.numa_node, two.environment.client.gpu) = (None, None);
        (two.environment.client.numa_node, one.environment.client.inline) = (Some(7), Some(5));
        two.environment.client.inline = None;
        let text = page(&[read(&one, "one"), read(&two, "two")]);
        for line in ["client: numa node</th><td></td><td>7</td>", "client: inline bytes</th><td>5</td><td></td>"] {
            assert!(text.contains(&format!("<tr class=\"differs\"><th scope=\"row\">{line}")), "{line}");
        }
        assert_eq!(text.matches(">client: device</th><td>mlx5_0</td><td>mlx5_0</td>").count(), 1);
    }

    #[test]
    fn run_that_is_only_worse_than_its_baseline_misses_no_limit() {
        let rows = |time| vec![sample::latency_row(2, time)];
        let series = |time| Series::of_plan("it", &sample::plan(Measure::Latency(Semantics::Ack)), rows(time));
        let comparison = crate::report::compare::Comparison::of(&series(1000), &series(2000), 5.0).unwrap();
        let mut worse = document("it");
        worse.verdict = Some(Verdict::new(&[], Some((&comparison, None))));
        let text = page(&[read(&worse, "one")]);
        assert!(text.contains("✘ worse than the baseline</td>") && !text.contains("limits missed"));
    }

    #[test]
    fn oversized_or_foreign_text_is_an_error() {
        let error = |text: &str| format!("{:#}", Run::read(text, "any").unwrap_err());
        assert_eq!(error("hello"), "it is neither JSON of stride-perf nor output of a perftest program");
        assert!(error("{\"a\": 1}").starts_with("it is not JSON of stride-perf"));
        let mut long = document("it");
        long.rows = vec![sample::latency_row(2, 1500); ROWS + 1];
        assert_eq!(
            error(&sample::written(|out| long.write(out))),
            format!("it has {} rows, and a page shows at most {ROWS}", ROWS + 1)
        );
    }
}
