//! Which options stand on the command line.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use crate::plan::Given;

/// The long names of all options that stand there, below whichever subcommands.
pub(super) fn given(mut command: &Command, mut matches: &ArgMatches) -> Given {
    let mut names = Vec::new();
    loop {
        let stands = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let options = command.get_arguments().filter(|option| matches.ids().any(|id| id == option.get_id()));
        let options = options.filter(|option| stands(option.get_id().as_str()));
        names.extend(options.filter_map(|option| option.get_long()).map(|long| format!("--{long}")));
        let Some((name, below)) = matches.subcommand() else { break };
        let Some(next) = command.find_subcommand(name) else { break };
        (command, matches) = (next, below);
    }
    names.into_iter().collect()
}
