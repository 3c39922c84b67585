//! The messages between rank 0 and the ranks. A frame of the control channel carries each of them.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Rank;
use crate::control::{Frame, PROTOCOL, decode};
use crate::plan::{Placement, Plan};
use crate::report::Row;

/// The kind of frame that carries a message of a mesh.
const KIND: u16 = 64;

/// Maximum length of a message to a rank in bytes, and of the first message of a rank.
pub const LONGEST_ORDER: u32 = 16 << 10;

/// Returns the maximum length of a later message of a rank, whose results have this number of sizes.
pub fn longest_report(sizes: usize) -> u32 {
    u32::try_from(sizes.saturating_mul(128 << 10)).unwrap_or(u32::MAX).clamp(64 << 10, 8 << 20)
}

/// A message of a rank to rank 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The first message.
    Join(Join),
    /// The rank serves the test on this TCP port.
    Listening {
        /// The test.
        test: u64,
        /// The port.
        port: u16,
    },
    /// The test that the rank measures has made progress.
    Alive {
        /// The test.
        test: u64,
    },
    /// The test has ended.
    Ended(Box<Ended>),
}

/// The first message of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The job of the rank.
    pub job: String,
    /// The number of the rank.
    pub rank: Rank,
    /// The number of ranks of the job.
    pub size: Rank,
    /// The name of the rank's host.
    pub host: String,
    /// What the rank must have in common with rank 0.
    #[serde(default)]
    pub test: Test,
}

/// What all ranks have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// The version of the program.
    pub version: String,
    /// A digest of the test on each rail.
    pub digest: u64,
}

impl Test {
    /// Describes the tests of the rails. The devices of a host do not count, because hosts may name them differently.
    ///
    /// # Errors
    ///
    /// Returns an error if a plan cannot be serialized.
    pub fn of<'a>(rails: impl Iterator<Item = &'a Plan>) -> serde_json::Result<Self> {
        let mut hasher = DefaultHasher::new();
        for plan in rails {
            let plan = Plan { placement: Placement::default(), ..plan.clone() };
            serde_json::to_string(&plan)?.hash(&mut hasher);
        }
        Ok(Self { version: env!("CARGO_PKG_VERSION").to_owned(), digest: hasher.finish() })
    }
}

/// The end of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The test.
    pub test: u64,
    /// The time to connect and to measure.
    pub seconds: f64,
    /// The RDMA ports of the client and of the server, if the test came so far.
    #[serde(default)]
    pub ports: Option<[String; 2]>,
    /// The results.
    pub rows: Vec<Row>,
    /// Remarks for the user.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Why the test failed, if it did.
    pub trouble: Option<Trouble>,
}

/// Why a test failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The error.
    pub text: String,
    /// Its kind.
    pub kind: Kind,
}

/// The kind of a failure, in the order of their exit statuses' priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// RDMA failed.
    Rdma,
    /// A rank left or was not reached.
    Contact,
    /// Anything else.
    Other,
}

/// A message of rank 0 to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The rank is a member of the mesh.
    Welcome,
    /// The rank cannot be a member. It may try again if the cause can pass.
    Reject {
        /// The cause.
        why: String,
        /// Whether another attempt is of no use.
        is_final: bool,
    },
    /// Serve one test on any TCP port.
    Serve {
        /// The test.
        test: u64,
        /// The rail.
        rail: u32,
    },
    /// Measure a test against a server.
    Measure {
        /// The test.
        test: u64,
        /// The rail.
        rail: u32,
        /// The address of the server.
        address: String,
        /// The TCP port of the server.
        port: u16,
    },
    /// No client will come for this test.
    Stop {
        /// The test.
        test: u64,
    },
    /// The mesh has ended.
    End,
}

/// Returns a message as a frame.
pub(crate) fn frame(message: &impl Serialize) -> serde_json::Result<Frame> {
    Ok(Frame { protocol: PROTOCOL, kind: KIND, body: serde_json::to_vec(message)? })
}

/// Returns the message in a frame.
///
/// # Errors
///
/// Returns a text for the user that describes what the peer sent.
pub(crate) fn message<T: DeserializeOwned>(frame: &Frame) -> Result<T, String> {
    if frame.protocol != PROTOCOL {
        let theirs = frame.protocol;
        return Err(format!(
            "it has protocol {theirs}, this is {PROTOCOL}; use one version of stride-perf on all hosts"
        ));
    }
    if frame.kind != KIND {
        return Err("it sent a message that does not belong to a mesh; it may be a server of stride-perf".to_owned());
    }
    decode(&frame.body).map_err(|error| format!("it sent a malformed message: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn messages_round_trip() {
        let ended = Ended {
            test: 7,
            seconds: 1.5,
            ports: Some(["a port 1".to_owned(), "b port 2".to_owned()]),
            rows: vec![sample::bandwidth_row(64, 1000)],
            warnings: Vec::new(),
            trouble: Some(Trouble { text: "no\u{1b}[31m".to_owned(), kind: Kind::Rdma }),
        };
        let found: Report = message(&frame(&Report::Ended(Box::new(ended.clone()))).unwrap()).unwrap();
        let Report::Ended(found) = found else { panic!("{found:?}") };
        assert_eq!(found.rows, ended.rows);
        assert!(!found.trouble.unwrap().text.contains('\u{1b}'), "control characters reach no terminal");
    }

    #[test]
    fn digest_depends_on_the_test_but_not_on_devices() {
        let digest = |change: fn(&mut Plan)| {
            let mut plan = Plan::default();
            change(&mut plan);
            Test::of([plan].iter()).unwrap().digest
        };
        let own = digest(|_| ());
        assert_eq!(digest(|plan| plan.placement.client.device = Some("mlx5_3".to_owned())), own);
        assert_ne!(digest(|plan| plan.workload.sizes = vec![7]), own);
        assert_ne!(Test::of([Plan::default(), Plan::default()].iter()).unwrap().digest, own);
    }

    #[test]
    fn foreign_frames_are_errors() {
        let good = frame(&Order::Welcome).unwrap();
        for (bad, part) in [
            (Frame { protocol: PROTOCOL + 1, ..good.clone() }, "use one version"),
            (Frame { kind: 1, ..good.clone() }, "does not belong to a mesh"),
            (Frame { body: b"{".to_vec(), ..good.clone() }, "malformed"),
            (Frame { body: b"[[]]".to_vec(), ..good }, "malformed"),
        ] {
            assert!(message::<Order>(&bad).unwrap_err().contains(part));
        }
    }
}
