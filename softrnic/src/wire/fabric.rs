//! The networks that devices reach.

/// The network that a device reaches. Each fabric has a [`Transport`], and its devices have one description.
///
/// [`Transport`]: super::transport::Transport
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// The processes of the host, which share memory. Programs see RoCE.
    Host,
    /// Other hosts, and processes that share no memory, by iWARP over TCP.
    Iwarp,
}
