//! Registering softrnic on request, by the environment or by the program.

#[cfg(not(feature = "softrnic"))]
pub(crate) use absent::{ready, register, state};
#[cfg(feature = "softrnic")]
pub(crate) use present::{ready, register, state};

#[cfg(feature = "softrnic")]
mod present {
    use core::ffi::c_int;
    use std::env;
    use std::io::{self, Write};
    use std::sync::{Mutex, Once, PoisonError};

    use softrnic::RegisterError;

    /// The environment variable that requests softrnic.
    const VARIABLE: &str = "RDMA_MUMMY_SOFTRNIC";

    static LOOKED: Once = Once::new();
    /// The result of registering softrnic, once requested.
    static RESULT: Mutex<Option<Result<(), RegisterError>>> = Mutex::new(None);

    /// Registers softrnic at the first call if the environment requests it. Registration starts no thread and opens no
    /// file, so a process that forks, closes its descriptors or never calls a verb is not affected.
    #[inline]
    pub(crate) fn ready() {
        LOOKED.call_once(look);
    }

    #[cold]
    fn look() {
        if is_asked_for()
            && let Err(error) = remembered()
        {
            say(&error);
        }
    }

    /// Whether the environment variable is set to anything but a "no" value. Set-user-ID programs ignore it.
    fn is_asked_for() -> bool {
        // SAFETY: `getauxval` reads this process's auxiliary vector, and has no preconditions.
        let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        !privileged && env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
    }

    /// Prints the error, because no return value can carry it.
    fn say(error: &RegisterError) {
        // A failed write to standard error is ignored.
        let _ = writeln!(io::stderr(), "rdma_mummy: cannot register softrnic: {error}");
    }

    fn remembered() -> Result<(), RegisterError> {
        let result = softrnic::register();
        // The value is consistent whenever the lock is free.
        let mut kept = RESULT.lock().unwrap_or_else(PoisonError::into_inner);
        // Registered devices stay, whatever is requested later.
        if !matches!(*kept, Some(Ok(()))) {
            *kept = Some(result.clone());
        }
        result
    }

    /// Registers softrnic's devices in this process, or returns the errno value of the failure.
    pub(crate) fn register() -> Result<(), c_int> {
        remembered().map_err(|error| match error {
            RegisterError::Provider(_) | RegisterError::Registered { .. } => libc::EEXIST,
            _ => libc::EINVAL,
        })
    }

    /// Describes whether softrnic's devices are registered, and if not, the remedy.
    pub(crate) fn state() -> String {
        match &*RESULT.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(())) => String::from("its devices are registered"),
            Some(Err(error)) => error.to_string(),
            None => format!(
                "not requested; set the environment variable {VARIABLE} to 1, or call rdma_mummy_register_softrnic()"
            ),
        }
    }
}

#[cfg(not(feature = "softrnic"))]
mod absent {
    use core::ffi::c_int;

    /// Does nothing: this build has no softrnic.
    #[inline]
    pub(crate) fn ready() {}

    /// Returns `EOPNOTSUPP`.
    pub(crate) fn register() -> Result<(), c_int> {
        Err(libc::EOPNOTSUPP)
    }

    /// States that this build has no softrnic.
    pub(crate) fn state() -> &'static str {
        "not in this library, which was built without it"
    }
}
