//! What the program says while it works.

use std::fmt::Arguments;

use anyhow::Result;

use super::text::printable;

/// Where lines go, and which are wanted.
pub(crate) struct Voice<'a> {
    /// Takes a line.
    say: &'a mut dyn FnMut(String) -> Result<()>,
    /// What stands before the text of a ping.
    title: &'static str,
    is_verbose: bool,
    is_debug: bool,
}

impl<'a> Voice<'a> {
    pub(crate) fn new(
        title: &'static str,
        is_verbose: bool,
        is_debug: bool,
        say: &'a mut dyn FnMut(String) -> Result<()>,
    ) -> Self {
        Self { say, title, is_verbose, is_debug }
    }

    /// Tells the text of a ping, where that is wanted.
    pub(crate) fn ping(&mut self, text: &[u8]) -> Result<()> {
        if self.is_verbose {
            return (self.say)(format!("{}: {}", self.title, printable(text)));
        }
        Ok(())
    }

    /// Tells of a step, where that is wanted.
    pub(crate) fn step(&mut self, step: Arguments<'_>) -> Result<()> {
        if self.is_debug {
            return (self.say)(step.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(is_verbose: bool, is_debug: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |line| {
            lines.push(line);
            Ok(())
        };
        let mut voice = Voice::new("ping data", is_verbose, is_debug, &mut say);
        voice.step(format_args!("step {}", 1)).unwrap();
        voice.ping(b"rdma-ping-0: AB\0").unwrap();
        lines
    }

    #[test]
    fn what_is_not_wanted_is_not_said() {
        assert_eq!(said(false, false), [""; 0]);
        assert_eq!(said(true, false), ["ping data: rdma-ping-0: AB"]);
        assert_eq!(said(false, true), ["step 1"]);
        assert_eq!(said(true, true), ["step 1", "ping data: rdma-ping-0: AB"]);
    }
}
