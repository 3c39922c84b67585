//! The ring readme: the commands in the READMEs and in `docs/` run, and print what is shown.
//!
//! `text` reads the commands of a document, `play` runs them on softrnic, `output` compares what they print, and
//! `table` has what takes the place of NICs and other hosts, and the commands that do not run.

mod output;
mod play;
mod table;
mod text;

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::table::Finished;
use super::{Context, Results, build, programs};
use crate::{capi, packages, preload, repo, trespass_capi};

/// Programs that the documents start and that are no examples.
const PROGRAMS: &[&str] = &["rdcp", "rdsend", "rdrecv", "rdpipe", "trespass-doctor"];

/// Builds what the documents build, with the options of the other rings, and runs each document.
pub(super) fn run(context: &Context<'_>) -> Result<Finished> {
    if let Err(error) = packages::require("the commands of the documents", &[packages::README, packages::C_EXAMPLES]) {
        return Ok(Finished::did_not_run(format!("{error:#}")));
    }
    let (root, target) = (context.root, repo::target_folder(context.root)?);
    let mut cargo = repo::cargo(root);
    cargo.args(["build", "--quiet", "--workspace", "--examples"]);
    cargo.args(PROGRAMS.iter().flat_map(|name| ["--bin", name]));
    repo::build(cargo)?;
    preload::build(root, &[build::BESIDE, programs::BESIDE].concat())?;
    trespass_capi::lay_out(root, &target.join("release"))?;
    capi::examples(root, &capi::build(root, true, "release", build::BESIDE)?)?;

    let mut finished = Finished::default();
    let is_wanted = |(name, _): &(String, String)| name.contains(context.options.only.as_str());
    for (name, text) in documents(root)?.into_iter().filter(is_wanted) {
        let started = Instant::now();
        let place = play::Place::new(&play::Built { root, target: &target })?;
        let mut count = 0;
        let played = text::blocks(&text).and_then(|blocks| {
            place.furnish(&name)?;
            for block in &blocks {
                count += place.play(block, is_left_out).with_context(|| format!("{name}:{}", block.line))?;
            }
            Ok(())
        });
        let time = started.elapsed().as_secs_f64();
        let one = match played {
            Ok(()) if count == 0 => continue,
            Ok(()) => {
                println!("test readme::{name} ... ok ({count} commands, {time:.1} s)");
                Results { passed: 1, ..Results::default() }
            }
            Err(error) => {
                println!("test readme::{name} ... FAILED ({time:.1} s)\n{error:#}\n");
                finished.fail(name.clone());
                Results { failed: 1, failures: vec![format!("{error:#}")], ..Results::default() }
            }
        };
        finished.results.add(&one);
    }
    Ok(finished.or_nothing_ran())
}

/// The READMEs, and the pages of `docs/`, each with its name.
fn documents(root: &Path) -> Result<Vec<(String, String)>> {
    let mut documents = Vec::new();
    for path in repo::files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if name.ends_with("README.md") || name.starts_with("docs/") {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
            documents.push((name, text));
        }
    }
    Ok(documents)
}

fn is_left_out(command: &str) -> bool {
    table::LEFT_OUT.iter().any(|(start, _)| command.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_name_only_what_the_documents_have() {
        let documents = documents(&repo::root().unwrap()).unwrap();
        let blocks = documents
            .iter()
            .flat_map(|(name, text)| text::blocks(text).unwrap_or_else(|error| panic!("{name}: {error}")).into_iter());
        let commands: Vec<String> = blocks.flat_map(|block| block.commands).map(|command| command.text).collect();
        assert!(commands.len() > 100, "{commands:?}");
        for (start, _) in table::LEFT_OUT {
            assert!(commands.iter().any(|command| command.starts_with(start)), "{start}");
        }
        for (part, _) in table::STAND_INS.iter().copied().chain(table::hosts()) {
            assert!(commands.iter().any(|command| command.contains(part)), "{part}");
        }
        for (document, _) in table::FILES {
            assert!(documents.iter().any(|(name, _)| name == document), "{document}");
        }
    }
}
