//! Writes the manual pages and the completion scripts (feature `manual`). clap generates the part about options, and the sections of `manual.txt` follow that part.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
pub use clap_complete::Shell;
use clap_mangen::Man;

use super::command::Program;

/// Sections of a test's manual page. The file consists of `# HEADING` lines, and of paragraphs separated by empty
/// lines.
const SECTIONS: &str = include_str!("manual.txt");

/// Returns the command with these words, or the program itself if there are no words.
pub(super) fn command(words: &[String]) -> Option<Command> {
    let mut program = Program::command();
    program.build();
    words.iter().try_fold(&program, |command, word| command.find_subcommand(word)).cloned()
}

/// Writes the manual page of the command with these words.
///
/// # Errors
///
/// Returns any error of the writer `to`, or `InvalidInput` if no command has these words.
pub fn man(words: &[String], to: &mut dyn Write) -> io::Result<()> {
    let command = command(words).ok_or(io::ErrorKind::InvalidInput)?;
    Man::new(command.clone()).render(to)?;
    if command.get_name() == "bw" || command.get_name() == "lat" { sections(SECTIONS, to) } else { Ok(()) }
}

/// Writes a shell completion script.
///
/// # Errors
///
/// Returns any error of the writer `to`.
pub fn completions(shell: Shell, to: &mut dyn Write) -> io::Result<()> {
    let mut page = Vec::new();
    clap_complete::generate(shell, &mut Program::command(), "stride-perf", &mut page);
    to.write_all(&page)
}

/// Writes text as roff. Hyphens become minus signs, so that options can be copied from the page; backslashes and
/// leading dots are escaped.
fn sections(text: &str, to: &mut dyn Write) -> io::Result<()> {
    for paragraph in text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        match paragraph.strip_prefix("# ") {
            Some(heading) => writeln!(to, ".SH \"{heading}\"")?,
            None => {
                writeln!(to, ".PP\n{}", paragraph.replace('\\', "\\e").replace('-', "\\-").replace("\n.", "\n\\&."))?
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_options_details_and_sections() {
        let mut page = Vec::new();
        man(&["write".to_owned(), "bw".to_owned()], &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        // The page must contain an option, a text that `--help` omits, and a section heading.
        assert!(
            page.contains("post\\-list")
                && page.contains("perftest\\*(Aqs \\-q with \\-O")
                && page.contains(".SH \"FIGURES\"")
        );
        assert!(page.contains("\n.PP\nBits are decimal"));
        man(&[], &mut Vec::new()).unwrap();
        assert!(man(&["fly".to_owned()], &mut Vec::new()).is_err());
    }

    #[test]
    fn sections_name_options_that_exist() {
        let mut program = Program::command();
        program.build();
        let test = ["write", "bw"].into_iter().fold(&program, |command, word| command.find_subcommand(word).unwrap());
        let words = SECTIONS.split(|letter: char| !(letter.is_alphanumeric() || letter == '-'));
        let options: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
        assert!(options.len() > 10);
        for option in options {
            assert!(test.get_arguments().any(|argument| argument.get_long() == Some(option)), "--{option}");
        }
    }

    #[test]
    fn completions_have_the_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut page = Vec::new();
            completions(shell, &mut page).unwrap();
            assert!(String::from_utf8(page).unwrap().contains("post-list"), "{shell}");
        }
    }
}
