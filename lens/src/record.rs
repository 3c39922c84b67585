//! The records of a trace: one JSON object a line, and as text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::moment::{Kind, Moment};
use crate::names;

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Nanoseconds since the start of the trace.
    pub at: u64,
    /// The thread, by the number that the kernel gave it.
    pub thread: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
    /// Whether the lens caused it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub injected: bool,
}

/// What a [`Record`] reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// A verb that creates, changes, queries or destroys.
    Call {
        /// The verb, such as `ibv_modify_qp`.
        verb: String,
        /// Names and values of the arguments, and of what the call returned through them.
        arguments: Vec<(String, String)>,
        /// The result of a success.
        result: String,
        /// The symbol of the errno value of a failure, such as `EINVAL`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A request in a send queue.
    Send(Request),
    /// A request in the receive queue of a queue pair, or in a shared one.
    Receive(Request),
    /// The device refused the last requests.
    Refused {
        /// The number of the queue pair.
        qp: u32,
        /// The number of requests.
        requests: u64,
        /// Whether they are receives.
        is_receive: bool,
        /// The symbol of the errno value.
        error: String,
    },
    /// A completion that the program polled.
    Completion {
        /// The number of the queue pair.
        qp: u32,
        /// The completion queue.
        cq: u32,
        /// The identifier of the request.
        wr_id: u64,
        /// The status, such as `RETRY_EXC_ERR`.
        status: String,
        /// The operation, such as `RDMA_WRITE`. After a failure, that of the request.
        opcode: String,
        /// The number of bytes.
        bytes: u64,
        /// The error code of the vendor.
        vendor: u32,
        /// Nanoseconds since the request was posted, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        took: Option<u64>,
        /// Requests of the send queue that are still in flight.
        in_flight: u64,
    },
    /// Moments that are missing, because the writer was too slow.
    Dropped {
        /// How many.
        moments: u64,
    },
    /// The start of a trace.
    Start {
        /// The program.
        program: String,
        /// Its process.
        process: u32,
        /// The time of this record by the host's clock, in nanoseconds since 1970.
        #[serde(default)]
        clock: u64,
    },
    /// The end of a trace. A process that is killed writes none.
    End {
        /// The process.
        process: u32,
    },
}

/// A request that was posted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The number of the queue pair; zero for a shared receive queue.
    pub qp: u32,
    /// The shared receive queue, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srq: Option<u32>,
    /// The identifier.
    pub wr_id: u64,
    /// The operation, such as `RDMA_WRITE`.
    pub opcode: String,
    /// The sum of the segments.
    pub bytes: u64,
    /// The flags, such as `SIGNALED|INLINE`.
    pub flags: String,
    /// The number of segments.
    pub segments: u8,
    /// Where the first segment starts.
    pub address: u64,
    /// The key of the first segment.
    pub lkey: u32,
    /// The remote address; of a datagram, the number of the peer's queue pair.
    pub remote: u64,
    /// The remote key; of a datagram, its Q_Key.
    pub key: u32,
    /// Immediate data in the byte order of the wire, or the key to invalidate.
    pub extra: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(is: &bool) -> bool {
    !is
}

impl From<Moment> for Record {
    fn from(moment: Moment) -> Self {
        let request = || Request {
            qp: moment.qp,
            srq: (moment.kind == Kind::SharedReceive).then_some(moment.queue),
            wr_id: moment.wr_id,
            opcode: match moment.kind {
                Kind::Send => names::request(moment.opcode.into()),
                _ => "RECV".to_owned(),
            },
            bytes: moment.bytes,
            flags: names::send_flags(moment.flags.into()),
            segments: moment.segments,
            address: moment.address,
            lkey: moment.lkey,
            remote: moment.remote,
            key: moment.key,
            extra: moment.extra as u32,
        };
        let what = match moment.kind {
            Kind::Send => What::Send(request()),
            Kind::Receive | Kind::SharedReceive => What::Receive(request()),
            Kind::Refused => What::Refused {
                qp: moment.qp,
                requests: moment.bytes.max(1),
                is_receive: moment.opcode == 128,
                error: names::errno(moment.errno.into()),
            },
            Kind::Completion => What::Completion {
                qp: moment.qp,
                cq: moment.queue,
                wr_id: moment.wr_id,
                status: names::status(moment.status.into()),
                opcode: match moment.segments {
                    0 => names::completed(moment.opcode.into()),
                    _ => names::request(moment.opcode.into()),
                },
                bytes: moment.bytes,
                vendor: moment.key,
                took: (moment.extra != 0).then_some(moment.extra),
                in_flight: moment.remote,
            },
        };
        Self { at: moment.at, thread: moment.thread, what, injected: moment.is_injected }
    }
}

/// As strace writes a call.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:4}.{:06} ", self.at / 1_000_000_000, self.at / 1000 % 1_000_000)?;
        if self.thread != 0 {
            write!(f, "[{}] ", self.thread)?;
        }
        self.what.fmt(f)?;
        if self.injected { write!(f, " (injected)") } else { Ok(()) }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Call { verb, arguments, result, error } => {
                write!(f, "{verb}(")?;
                for (index, (name, value)) in arguments.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    // `send_cq` and `cq 2` make `send_cq 2`.
                    let value = value
                        .split_once(' ')
                        .filter(|(kind, _)| name.ends_with(kind))
                        .map_or(&**value, |(_, rest)| rest);
                    write!(f, "{comma}{name} {value}")?;
                }
                write!(f, ")")?;
                match error {
                    Some(error) => write!(f, " = {error}"),
                    None if result.is_empty() => Ok(()),
                    None => write!(f, " = {result}"),
                }
            }
            What::Send(request) | What::Receive(request) => request.fmt(f),
            What::Refused { qp, requests, is_receive, error } => {
                let kind = if *is_receive { "receive" } else { "send" };
                write!(
                    f,
                    "refused qp {qp:#x} {requests} {kind} request{} = {error}",
                    if *requests == 1 { "" } else { "s" }
                )
            }
            What::Completion { qp, cq, wr_id, status, opcode, bytes, vendor, took, in_flight } => {
                write!(f, "completion qp {qp:#x} cq {cq} {opcode} wr_id {wr_id} {bytes} bytes = {status}")?;
                if status != "SUCCESS" {
                    write!(f, " (vendor {vendor:#x}, {in_flight} in flight)")?;
                }
                took.map_or(Ok(()), |took| write!(f, " after {:.1} us", took as f64 / 1000.0))
            }
            What::Dropped { moments } => write!(f, "{moments} records are missing: the trace was too slow"),
            What::Start { program, process, .. } => write!(f, "{program}, process {process}"),
            What::End { process } => write!(f, "end of process {process}"),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { qp, srq, wr_id, opcode, bytes, flags, remote, key, lkey, .. } = self;
        match srq {
            Some(srq) => write!(f, "post srq {srq}")?,
            None => write!(f, "post qp {qp:#x}")?,
        }
        write!(f, " {opcode} wr_id {wr_id} {bytes} bytes lkey {lkey:#x}")?;
        if flags != "0" {
            write!(f, " {flags}")?;
        }
        match opcode.as_str() {
            "SEND" | "SEND_WITH_IMM" if *remote != 0 => write!(f, " to qp {remote:#x} qkey {key:#x}")?,
            _ if *remote != 0 => write!(f, " remote {remote:#x} rkey {key:#x}")?,
            _ => {}
        }
        if opcode.ends_with("IMM") { write!(f, " imm {:#x}", u32::from_be(self.extra)) } else { Ok(()) }
    }
}
