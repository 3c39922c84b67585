//! What the data path records: a fixed number of words for each request and completion, from which the trace is written.

use rdma_mummy_sys as ffi;

/// The number of words.
pub(crate) const WORDS: usize = 10;

/// A request, a refusal or a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Nanoseconds since the start.
    pub(crate) at: u64,
    pub(crate) kind: Kind,
    /// `ibv_wr_opcode` of a request, `ibv_wc_opcode` of a completion.
    pub(crate) opcode: u8,
    /// `ibv_wc_status`.
    pub(crate) status: u8,
    /// The number of segments.
    pub(crate) segments: u8,
    /// `ibv_send_flags` of a request, `ibv_wc_flags` of a completion.
    pub(crate) flags: u16,
    pub(crate) is_injected: bool,
    /// The errno value of a refusal.
    pub(crate) errno: u8,
    pub(crate) qp: u32,
    /// The completion queue or the shared receive queue, by its handle.
    pub(crate) queue: u32,
    pub(crate) wr_id: u64,
    pub(crate) bytes: u64,
    /// The remote address; of a datagram, the number of the peer's queue pair.
    pub(crate) remote: u64,
    /// The remote key; of a datagram, its Q_Key; of a completion, the vendor's error.
    pub(crate) key: u32,
    pub(crate) lkey: u32,
    /// Where the first segment starts.
    pub(crate) address: u64,
    /// Immediate data, as the program wrote it; of a completion, nanoseconds since the request was posted.
    pub(crate) extra: u64,
    /// The number of the thread.
    pub(crate) thread: u32,
}

/// What a [`Moment`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    #[default]
    Send = 0,
    Receive = 1,
    SharedReceive = 2,
    /// The device refused a request.
    Refused = 3,
    Completion = 4,
}

impl Kind {
    fn of(number: u8) -> Self {
        [Self::Send, Self::Receive, Self::SharedReceive, Self::Refused, Self::Completion]
            .get(usize::from(number))
            .copied()
            .unwrap_or_default()
    }
}

impl Moment {
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let bytes = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [f0, f1] = self.flags.to_le_bytes();
        let small =
            [self.kind as u8, self.opcode, self.status, self.segments, f0, f1, self.is_injected.into(), self.errno];
        [
            self.at,
            bytes(small),
            pair(self.qp, self.queue),
            self.wr_id,
            self.bytes,
            self.remote,
            pair(self.key, self.lkey),
            self.address,
            self.extra,
            self.thread.into(),
        ]
    }

    pub(crate) fn of_words(words: [u64; WORDS]) -> Self {
        let [at, small, queues, wr_id, bytes, remote, keys, address, extra, thread] = words;
        let [kind, opcode, status, segments, f0, f1, is_injected, errno] = small.to_le_bytes();
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let ((qp, queue), (key, lkey)) = (halves(queues), halves(keys));
        Self {
            at,
            kind: Kind::of(kind),
            opcode,
            status,
            segments,
            flags: u16::from_le_bytes([f0, f1]),
            is_injected: is_injected != 0,
            errno,
            qp,
            queue,
            wr_id,
            bytes,
            remote,
            key,
            lkey,
            address,
            extra,
            thread: thread as u32,
        }
    }
}

/// The status of a completion, which fits in a byte: there are 24.
pub(crate) fn status_number(status: ffi::ibv_wc_status) -> u8 {
    status.0.try_into().unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_a_moment() {
        let moment = Moment {
            at: 1,
            kind: Kind::Completion,
            opcode: 129,
            status: 12,
            segments: 3,
            flags: 0x1234,
            is_injected: true,
            errno: 22,
            qp: 0x11,
            queue: u32::MAX,
            wr_id: u64::MAX,
            bytes: 1 << 40,
            remote: 5,
            key: 6,
            lkey: 7,
            address: 8,
            extra: 9,
            thread: 10,
        };
        assert_eq!(Moment::of_words(moment.to_words()), moment);
    }
}
