//! The parts of the program that a build can leave out.

/// A part of the program that is a feature of the package.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Feature {
    /// The manual pages and the completion scripts.
    Manual,
    /// The tests with messages of trespass.
    Msg,
    /// The plots.
    Plot,
}

impl Feature {
    /// Returns an error for the user if this build lacks the feature. `what` is the command or option that requires it.
    pub(crate) fn check(self, what: &str) -> Result<(), String> {
        let (name, is_built) = match self {
            Self::Manual => ("manual", cfg!(feature = "manual")),
            Self::Msg => ("msg", cfg!(feature = "msg")),
            Self::Plot => ("plot", cfg!(feature = "plot")),
        };
        if is_built {
            return Ok(());
        }
        Err(format!(
            "this build lacks {what}: it has no feature \"{name}\"; run `cargo install --path stride`, or build stride-perf \
             with its default features"
        ))
    }
}
