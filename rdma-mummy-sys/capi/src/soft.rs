//! softrnic, for who asks for it: by the environment, or by the program.

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

    /// The environment variable that asks for softrnic.
    const VARIABLE: &str = "RDMA_MUMMY_SOFTRNIC";

    static LOOKED: Once = Once::new();
    /// What came of registering it, once somebody has asked.
    static RESULT: Mutex<Option<Result<(), RegisterError>>> = Mutex::new(None);

    /// Registers softrnic if the environment asks for it and no call has looked yet. It makes no thread and opens nothing, so that a
    /// process which forks, closes all its descriptors or never calls a verb loses nothing.
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

    /// Whether the environment says anything but no. A program that runs with more rights than its caller (set-user-ID) does not
    /// listen, as the loader does not.
    fn is_asked_for() -> bool {
        // SAFETY: reads the auxiliary vector of this process and has no precondition.
        let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        !privileged && env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
    }

    /// Who set the variable has nobody else to hear this from.
    fn say(error: &RegisterError) {
        // Where standard error takes nothing there is nobody to tell, and no reason to end the program.
        let _ = writeln!(io::stderr(), "rdma_mummy: there are no soft devices: {error}");
    }

    fn remembered() -> Result<(), RegisterError> {
        let result = softrnic::register();
        // It is whole whenever the lock is free.
        let mut kept = RESULT.lock().unwrap_or_else(PoisonError::into_inner);
        // Devices that are there stay, whatever is asked for later.
        if !matches!(*kept, Some(Ok(()))) {
            *kept = Some(result.clone());
        }
        result
    }

    /// Makes softrnic's devices those of this process, or says with which errno value this cannot be.
    pub(crate) fn register() -> Result<(), c_int> {
        remembered().map_err(|error| match error {
            RegisterError::Provider(_) | RegisterError::Registered { .. } => libc::EEXIST,
            _ => libc::EINVAL,
        })
    }

    /// Whether its devices are there, or what to change.
    pub(crate) fn state() -> String {
        match &*RESULT.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(())) => String::from("its devices are registered"),
            Some(Err(error)) => error.to_string(),
            None => format!(
                "not asked for: set the environment variable {VARIABLE} to 1, or call rdma_mummy_register_softrnic()"
            ),
        }
    }
}

#[cfg(not(feature = "softrnic"))]
mod absent {
    use core::ffi::c_int;

    /// There is nothing to ask for.
    #[inline]
    pub(crate) fn ready() {}

    /// Refuses.
    pub(crate) fn register() -> Result<(), c_int> {
        Err(libc::EOPNOTSUPP)
    }

    /// That it is not there.
    pub(crate) fn state() -> &'static str {
        "not in this library, which was built without it"
    }
}
