//! What a device has not, told apart from what goes wrong.

use std::error::Error;
use std::fmt;

use sideway::error::VerbError;

/// A device has not what a test needs: a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Error for Unsupported {}

/// Whether an error is of a device that has not what was asked for, as it or its driver says.
pub fn is_unsupported(error: &anyhow::Error) -> bool {
    let lacks = [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPROTONOSUPPORT];
    error.chain().any(|cause| {
        cause.is::<Unsupported>()
            || cause.downcast_ref::<VerbError>().is_some_and(|verb| lacks.contains(&verb.errno().raw()))
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn who_has_not_is_told_from_who_fails() {
        let of = |code| VerbError::new("ibv_create_qp", sideway::error::Errno::from_raw(code));
        let within = |error: VerbError| Err::<(), _>(error).context("queue pairs").unwrap_err();
        for code in [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPROTONOSUPPORT] {
            assert!(is_unsupported(&within(of(code))), "{code}");
        }
        assert!(!is_unsupported(&within(of(libc::ENOMEM))));
        assert!(is_unsupported(&anyhow!(Unsupported("no atomics".to_owned())).context("more")));
        assert!(!is_unsupported(&anyhow!("no atomics")));
    }
}
