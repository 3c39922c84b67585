//! The tables of the page.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::chart::class;
use super::html::Html;
use super::mesh_limits::Limits;
use super::{Results, Run, Series};
use crate::plan::Measure;
use crate::report::compare::{IDLE, Outcome, words};
use crate::report::json::Document;
use crate::report::limits::unit;
use crate::report::table::{Columns, Table};
use crate::report::units::apart;
use crate::report::verdict::{Compared, Verdict};
use crate::report::{Style, bytes_in_words, fixed, ports};

/// Appends a table with a line per run: what ran where, and how it ended.
pub(super) fn runs(html: &mut Html, runs: &[Run]) {
    html.raw("<div class=\"scroll\"><table class=\"words\">\n<thead><tr><th>Run</th><th>Test</th><th>Client</th>");
    html.raw("<th>Server</th><th>Start</th><th>Result</th></tr></thead>\n<tbody>\n");
    let mut number = 0;
    for run in runs {
        if let Results::Mesh(mesh) = &run.results {
            let test = format!("mesh {}, {}", mesh.plan.title(), mesh.plan.attributes.transport);
            html.add("<tr><th scope=\"row\">{}</th><td>{}</td>", &[&run.name, &test]);
            html.add("<td colspan=\"2\">{} ranks</td><td>{}</td>", &[&mesh.ranks.len(), &mesh.time]);
            ending(html, mesh.error.as_ref(), mesh.limits.as_ref().map(Limits::misses));
            continue;
        }
        html.add("<tr><th scope=\"row\"><span class=\"{}\">{}</span></th>", &[&class(number), &run.name]);
        let series = run.series();
        number += series.len();
        let Some(document) = run.document() else {
            let kinds: Vec<_> = series.iter().map(Series::kind).collect();
            html.add("<td>perftest: {}</td><td></td><td></td><td></td><td></td></tr>\n", &[&kinds.join("; ")]);
            continue;
        };
        let environment = &document.environment;
        let side = |port: &crate::endpoint::PortInfo| format!("{}, {}", port.host, port.name());
        let (client, server) = (side(&environment.client), side(&environment.server));
        let test = format!("{}, {}", environment.plan.title(), environment.plan.attributes.transport);
        html.add("<td>{}</td><td>{}</td><td>{}</td><td>{}</td>", &[&test, &client, &server, &environment.time]);
        ending(html, document.error.as_ref(), document.verdict.as_ref().map(misses));
    }
    html.raw("</tbody></table></div>\n");
}

/// Returns what a test missed, as a text that is empty if it missed nothing.
fn misses(verdict: &Verdict) -> &'static str {
    let outcome = verdict.comparison.as_ref().map(|compared| compared.outcome);
    match (verdict.misses.is_empty(), outcome) {
        _ if verdict.is_held => "",
        (false, Some(Outcome::Worse)) => "limits missed, worse than the baseline",
        (true, Some(Outcome::Worse)) => "worse than the baseline",
        (true, Some(Outcome::Nothing)) => "no size in common with the baseline",
        _ => "limits missed",
    }
}

/// Appends how a run ended, which ends its line. `misses` is empty if the run missed nothing.
fn ending(html: &mut Html, error: Option<&String>, misses: Option<&str>) {
    match (error, misses) {
        (Some(error), _) => html.add("<td class=\"bad\">✘ incomplete: {}</td></tr>\n", &[error]),
        (None, Some("")) => html.raw("<td class=\"good\">✔ limits met</td></tr>\n"),
        (None, Some(misses)) => html.add("<td class=\"bad\">✘ {}</td></tr>\n", &[&misses]),
        (None, None) => html.raw("<td>complete</td></tr>\n"),
    }
}

fn documents(runs: &[Run]) -> impl Iterator<Item = (&str, &Document)> {
    runs.iter().filter_map(|run| Some((run.name.as_str(), run.document()?)))
}

/// Appends the limits that runs missed, and the comparisons with baselines.
pub(super) fn verdicts(html: &mut Html, runs: &[Run]) {
    html.raw("<div class=\"flow\">\n");
    for (name, document) in documents(runs) {
        let Some(verdict) = &document.verdict else { continue };
        html.add("<section><h2>Limits: {}</h2>\n", &[&name]);
        if verdict.is_held {
            html.raw("<p class=\"good\">✔ All limits are met.</p>\n");
        }
        if !verdict.misses.is_empty() {
            html.raw("<div class=\"scroll\"><table>\n<thead><tr><th>Size</th><th>Option</th><th>Limit</th><th>Found</th></tr>");
            html.raw("</thead>\n<tbody>\n");
            for miss in &verdict.misses {
                let [limit, found] = apart([miss.limit, miss.found.unwrap_or(f64::NAN)]);
                let (size, unit) = (bytes_in_words(miss.size_bytes), unit(&miss.option));
                let line =
                    "<tr><th scope=\"row\">{}</th><td>{}</td><td>{} {}</td><td class=\"bad\">✘ {} {}</td></tr>\n";
                html.add(line, &[&size, &miss.option, &limit, &unit, &found, &unit]);
            }
            html.raw("</tbody></table></div>\n");
        }
        if let Some(compared) = &verdict.comparison {
            comparison(html, compared, document.semantics.is_some());
        }
        html.raw("</section>\n");
    }
    html.raw("</div>\n");
}

fn comparison(html: &mut Html, compared: &Compared, is_latency: bool) {
    let outcome = match compared.outcome {
        Outcome::Held => "no size is worse",
        Outcome::Worse => "some sizes are worse",
        Outcome::Nothing => "no size in common",
    };
    html.add("<h3>Compared with the baseline: {}</h3>\n", &[&outcome]);
    html.add("<p>A change of up to {} % counts as none.</p>\n", &[&fixed(compared.threshold_percent, 8, 1)]);
    let (unit, scale) = if is_latency { ("us", 1e-3) } else { ("Gb/s", 1.0) };
    html.raw("<div class=\"scroll\"><table>\n<thead><tr><th>Size</th>");
    html.add("<th>Baseline, {}</th><th>This run, {}</th><th>Gain, %</th></tr></thead>\n<tbody>\n", &[&unit, &unit]);
    let text = |value: Option<f64>, scale: f64, decimals| fixed(value.unwrap_or(f64::NAN) * scale, 10, decimals);
    for size in &compared.sizes {
        let (old, new, gain) = (text(size.old, scale, 3), text(size.new, scale, 3), text(size.gain_percent, 1.0, 1));
        let (class, mark) = if size.is_worse { ("bad", "✘ ") } else { ("", "") };
        let line = "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"{}\">{}{}</td></tr>\n";
        html.add(line, &[&bytes_in_words(size.size_bytes), &old, &new, &class, &mark, &gain]);
    }
    html.raw("</tbody></table></div>\n");
    list(html, compared.differences.iter().flatten());
}

/// Appends the hints, each of them once with the runs that have it.
pub(super) fn hints(html: &mut Html, runs: &[Run]) {
    let mut hints: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut places = HashMap::new();
    for (name, document) in documents(runs) {
        for hint in &document.hints {
            let place = *places.entry(hint.as_str()).or_insert_with(|| {
                hints.push((hint, Vec::new()));
                hints.len() - 1
            });
            hints[place].1.push(name);
        }
    }
    if hints.is_empty() {
        return;
    }
    html.raw("<section><h2>Hints</h2>\n<ul>\n");
    for (hint, names) in hints {
        html.add("<li><strong>{}</strong>: {}</li>\n", &[&names.join(", "), &hint]);
    }
    html.raw("</ul>\n</section>\n");
}

fn list<'a>(html: &mut Html, texts: impl Iterator<Item = &'a String>) {
    html.raw("<ul>\n");
    texts.for_each(|text| html.add("<li>{}</li>\n", &[text]));
    html.raw("</ul>\n");
}

/// Appends a table for each series, with the columns of the table on a terminal.
pub(super) fn results(html: &mut Html, runs: &[Run]) {
    for run in runs {
        let names = run.document().map(|document| &document.environment);
        let names = names.map(|one| ports(&one.client, &one.server, &one.path)).unwrap_or_default();
        for series in run.series() {
            let table = Table::new(series.measure, Columns { intervals: true, cpu: true }, Style::plain());
            let measure = match series.measure {
                Measure::Bandwidth => "Bandwidth".to_owned(),
                Measure::Latency(semantics) => format!("Latency ({semantics})"),
            };
            html.add("<section><h2>{}: {}</h2>\n<div class=\"scroll\"><table>\n<thead><tr>", &[&measure, &series.name]);
            table.heads().for_each(|(name, unit)| html.add("<th>{} <small>{}</small></th>", &[&name, &unit]));
            html.raw("</tr></thead>\n<tbody>\n");
            for row in &series.rows {
                html.raw("<tr>");
                table.cells(row).for_each(|text| html.add("<td>{}</td>", &[&text]));
                html.raw(if row.is_whole { "</tr>\n" } else { "<td class=\"bad\">cut short</td></tr>\n" });
                for (name, rates) in names.iter().zip(row.port_averages()) {
                    let line = "<tr class=\"part\"><td></td><td>{}</td><td>{}</td></tr>\n";
                    html.add(line, &[name, &fixed(rates.gigabits_per_second, 9, 3)]);
                }
            }
            html.raw("</tbody></table></div></section>\n");
        }
    }
}

/// Appends a table of settings and hosts with a column per run. Lines in which the runs differ are marked.
pub(super) fn environments(html: &mut Html, runs: &[Run]) {
    let all: Vec<_> = documents(runs).map(|(name, document)| (name, members(document))).collect();
    if all.is_empty() {
        return;
    }
    html.raw("<section><h2>Environment</h2>\n<details><summary>Settings, hosts and devices</summary>\n");
    html.raw("<div class=\"scroll\"><table class=\"words\">\n<thead><tr><th></th>");
    all.iter().for_each(|(name, _)| html.add("<th>{}</th>", &[name]));
    html.raw("</tr></thead>\n<tbody>\n");
    let of_runs: Vec<HashMap<_, _>> =
        all.iter().map(|(_, members)| members.iter().map(|(name, value)| (name, value.as_str())).collect()).collect();
    let mut seen = HashSet::new();
    for (member, _) in all.iter().flat_map(|(_, members)| members).filter(|(name, _)| seen.insert(name)) {
        let values: Vec<_> = of_runs.iter().map(|members| members.get(member).copied().unwrap_or_default()).collect();
        let is_same = values.windows(2).all(|pair| pair[0] == pair[1]);
        html.add("<tr class=\"{}\"><th scope=\"row\">{}</th>", &[&if is_same { "" } else { "differs" }, member]);
        values.iter().for_each(|value| html.add("<td>{}</td>", &[value]));
        html.raw("</tr>\n");
    }
    html.raw("</tbody></table></div></details></section>\n");
}

/// Returns the names and values of the environment of a run.
fn members(document: &Document) -> Vec<(String, String)> {
    let environment = &document.environment;
    let mut all = vec![
        ("command line".to_owned(), environment.command_line.join(" ")),
        ("version".to_owned(), environment.version.clone()),
    ];
    let settings = environment.plan.settings().into_iter();
    all.extend(settings.map(|setting| (setting.options.first().cloned().unwrap_or_default(), setting.value)));
    let value = serde_json::to_value(environment).unwrap_or_default();
    for part in ["path", "client", "server"] {
        let members = value[part].as_object().into_iter().flatten();
        let shown = members.filter(|(name, value)| !IDLE.contains(&name.as_str()) && **value != Value::Null);
        all.extend(shown.map(|(name, value)| (format!("{part}: {}", name.replace('_', " ")), words(value))));
    }
    all
}
