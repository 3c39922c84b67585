//! Loading the libraries, and providers other than the recording device. A library is loaded once in a process and a provider stays
//! registered, so a test that depends on either starts a process of its own.

mod device_values;
mod fork_init;
mod loading;
mod loading_and_forks;
mod providers;
