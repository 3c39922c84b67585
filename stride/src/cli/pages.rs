//! What is printed of the command line itself.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::command::Program;

/// Writes what completes the options in a shell.
///
/// # Errors
///
/// Those of `to`.
pub fn completions(shell: Shell, to: &mut dyn Write) -> io::Result<()> {
    let mut page = Vec::new();
    clap_complete::generate(shell, &mut Program::command(), "stride-perf", &mut page);
    to.write_all(&page)
}

/// Writes a manual page: that of the program, or of the command with these words.
///
/// # Errors
///
/// Those of `to`; `InvalidInput` where there is no such command.
pub fn man(words: &[String], to: &mut dyn Write) -> io::Result<()> {
    let mut program = Program::command();
    program.build();
    let mut command = &program;
    for word in words {
        command = command
            .find_subcommand(word)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("there is no command {word:?}")))?;
    }
    Man::new(command.clone()).render(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut page = Vec::new();
            completions(shell, &mut page).unwrap();
            assert!(String::from_utf8(page).unwrap().contains("post-list"), "{shell}");
        }
        let mut page = Vec::new();
        man(&["write".to_owned(), "bw".to_owned()], &mut page).unwrap();
        assert!(String::from_utf8(page).unwrap().contains("post\\-list"));
        man(&[], &mut Vec::new()).unwrap();
        assert!(man(&["fly".to_owned()], &mut Vec::new()).is_err());
    }
}
