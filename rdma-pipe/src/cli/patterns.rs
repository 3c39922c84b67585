//! The options `--include` and `--exclude`, in the order of the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

use crate::tree::Filter;

/// The patterns of the command line. The first that matches decides, so their order matters.
#[derive(Debug, Default)]
pub(super) struct Patterns(pub(super) Filter);

/// The options, whether they include, and their help.
const OPTIONS: [(&str, bool, &str); 2] = [
    ("exclude", false, "Exclude matching paths; * matches within a component, ** across components"),
    ("include", true, "Include matching paths that a later --exclude would exclude"),
];

impl Args for Patterns {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.map(|(name, _, help)| {
            let arg = Arg::new(name).long(name).value_name("PATTERN").help(help);
            arg.action(ArgAction::Append).allow_hyphen_values(true).value_parser(value_parser!(OsString))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Patterns {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut patterns = Self::default();
        patterns.update_from_arg_matches(matches).map(|()| patterns)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mut all: Vec<(usize, bool, &OsString)> = Vec::new();
        for (name, includes, _) in OPTIONS {
            let given = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many(name).into_iter().flatten();
            all.extend(given.zip(values).map(|(at, pattern)| (at, includes, pattern)));
        }
        all.sort_by_key(|(at, ..)| *at);
        for (_, includes, pattern) in all {
            match pattern.as_bytes() {
                // As in rsync, these prefixes decide instead of the option, and this pattern removes those before it.
                b"!" => self.0 = Filter::default(),
                b"+ " | b"- " => {
                    let text = format!("the pattern '{}' is empty after its prefix\n", pattern.display());
                    return Err(clap::Error::raw(clap::error::ErrorKind::ValueValidation, text));
                }
                [sign @ (b'+' | b'-'), b' ', pattern @ ..] => self.0.add(*sign == b'+', pattern),
                pattern => self.0.add(includes, pattern),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_the_command_line_decides() {
        let allows = |words: &[&str]| {
            let command = Patterns::augment_args(Command::new("test").no_binary_name(true));
            Patterns::from_arg_matches(&command.get_matches_from(words)).unwrap().0.allows(b"keep.o", false)
        };
        assert!(allows(&["--include", "keep.o", "--exclude", "*.o"]));
        assert!(!allows(&["--exclude", "*.o", "--include", "keep.o"]));
        assert!(allows(&["--exclude=*.c", "--include=keep.o", "--exclude=*"]));
    }

    #[test]
    fn prefixes_are_those_of_rsync() {
        let allows = |words: &[&str]| {
            let command = Patterns::augment_args(Command::new("test").no_binary_name(true));
            Patterns::from_arg_matches(&command.get_matches_from(words)).unwrap().0.allows(b"x", false)
        };
        assert!(!allows(&["--exclude", "- x"]) && !allows(&["--include", "- x", "--include", "x"]));
        assert!(allows(&["--exclude=+ x", "--exclude=x"]));
        assert!(allows(&["--exclude=x", "--exclude=!"]) && !allows(&["--include=!", "--exclude=x"]));
        assert!(allows(&["--exclude=-x"]));
        for empty in ["--exclude=- ", "--include=+ "] {
            let command = Patterns::augment_args(Command::new("test").no_binary_name(true));
            let error = Patterns::from_arg_matches(&command.get_matches_from([empty])).unwrap_err();
            assert!(error.to_string().contains("is empty after its prefix"), "{error}");
        }
    }
}
