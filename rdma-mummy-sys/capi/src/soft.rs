//! softrnic, for who asks for it: by the environment, or by the program.

#[cfg(not(feature = "softrnic"))]
pub(crate) use absent::{ready, register, state};
#[cfg(feature = "softrnic")]
pub(crate) use present::{ready, register, state};

/// Why softrnic's devices are not there.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The errno value.
    pub(crate) code: core::ffi::c_int,
    /// What to change.
    pub(crate) text: String,
}

#[cfg(feature = "softrnic")]
mod present {
    use std::env;
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::Refusal;

    /// The environment variable that asks for softrnic.
    const VARIABLE: &str = "RDMA_MUMMY_SOFTRNIC";

    static ASKED: Once = Once::new();
    static REGISTERED: AtomicBool = AtomicBool::new(false);

    /// Registers softrnic if the environment asks for it and no call has looked yet. It makes no thread and opens nothing, so that a
    /// process which forks, closes all its descriptors or never calls a verb loses nothing.
    #[inline]
    pub(crate) fn ready() {
        ASKED.call_once(ask);
    }

    #[cold]
    fn ask() {
        if is_asked_for()
            && let Err(refusal) = register()
        {
            say(&refusal.text);
        }
    }

    /// Whether the environment says anything but no. A program that runs with more rights than its caller (set-user-ID) does not
    /// listen, as the loader does not.
    fn is_asked_for() -> bool {
        // SAFETY: reads the auxiliary vector of this process and has no precondition.
        let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        !privileged && env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
    }

    /// Who set the variable has nobody else to hear this from.
    #[expect(clippy::print_stderr, reason = "the program has not asked for softrnic, and so would not look")]
    fn say(text: &str) {
        eprintln!("rdma_mummy: there are no soft devices: {text}");
    }

    /// Makes softrnic's devices those of this process.
    pub(crate) fn register() -> Result<(), Refusal> {
        match softrnic::register() {
            Ok(()) => {
                REGISTERED.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let code = match error {
                    softrnic::RegisterError::Provider(_) => libc::EEXIST,
                    _ => libc::EINVAL,
                };
                Err(Refusal { code, text: error.to_string() })
            }
        }
    }

    /// Whether its devices are there.
    pub(crate) fn state() -> &'static str {
        if REGISTERED.load(Ordering::Relaxed) {
            "its devices are registered"
        } else {
            "not asked for: set the environment variable RDMA_MUMMY_SOFTRNIC to 1, or call rdma_mummy_register_softrnic()"
        }
    }
}

#[cfg(not(feature = "softrnic"))]
mod absent {
    use super::Refusal;

    /// There is nothing to ask for.
    #[inline]
    pub(crate) fn ready() {}

    /// Refuses.
    pub(crate) fn register() -> Result<(), Refusal> {
        Err(Refusal { code: libc::EOPNOTSUPP, text: state().to_owned() })
    }

    /// That it is not there.
    pub(crate) fn state() -> &'static str {
        "not in this library, which was built without it"
    }
}
