//! Both sides of a byte stream that continues over another connection after its connection breaks.
//!
//! The source keeps each block until the sink has acknowledged it. On each connection, the source first identifies the
//! stream. The sink answers with the number of bytes that it has, and the source continues after these bytes.

use std::collections::VecDeque;

use super::frame::{Frame, Totals};
use crate::error::{Error, Result};

/// The maximum number of bytes that the source keeps, and the maximum number of blocks.
const WINDOW: usize = 16 << 20;
const BLOCKS: usize = 1024;
/// The number of bytes, and the number of blocks, after which the sink sends an acknowledgement.
const UNACKNOWLEDGED: u64 = 2 << 20;
const UNACKNOWLEDGED_BLOCKS: u64 = 128;

/// The source of a stream. `K` is the data that it keeps for each block so that it can send the block again.
#[derive(Debug)]
pub struct StreamSource<K> {
    id: u128,
    totals: Totals,
    /// The blocks that the sink has not acknowledged, in order.
    kept: VecDeque<Kept<K>>,
    bytes: usize,
    /// How many blocks in `kept` were sent over this connection.
    sent: usize,
    /// The number of bytes that the sink has acknowledged.
    acknowledged: u64,
    /// Whether the stream was begun over an earlier connection.
    has_begun: bool,
    /// Whether the source still waits for the sink to report how many bytes it has.
    is_resuming: bool,
    /// Whether the input has ended, and whether the source has reported this to the sink over this connection.
    has_ended: bool,
    end_is_sent: bool,
}

/// A block that the sink has not acknowledged.
#[derive(Debug)]
pub struct Kept<K> {
    /// The offset in the stream.
    pub offset: u64,
    /// The number of bytes.
    pub length: usize,
    /// The data that the source keeps for the block.
    pub data: K,
}

/// What the source does next.
#[derive(Debug)]
pub enum Step<'k, K> {
    /// Wait until the sink sends a frame.
    Wait,
    /// Send this block again.
    Again(&'k Kept<K>),
    /// Read the input, and send the block.
    Read,
    /// Send the end of the stream.
    End(Frame),
}

impl<K> StreamSource<K> {
    /// Creates a stream with a random number.
    pub fn new(id: u128) -> StreamSource<K> {
        StreamSource {
            id,
            totals: Totals { files: 1, ..Totals::default() },
            kept: VecDeque::new(),
            bytes: 0,
            sent: 0,
            acknowledged: 0,
            has_begun: false,
            is_resuming: false,
            has_ended: false,
            end_is_sent: false,
        }
    }

    /// Begins a connection; returns its first frame.
    pub fn begin(&mut self) -> Frame {
        let again = std::mem::replace(&mut self.has_begun, true);
        (self.sent, self.is_resuming, self.end_is_sent) = (0, again, false);
        Frame::StreamBegin { id: self.id, again }
    }

    /// Returns the next step.
    pub fn next_step(&mut self) -> Step<'_, K> {
        if self.is_resuming || self.end_is_sent {
            return Step::Wait;
        }
        if let Some(block) = self.kept.get(self.sent) {
            self.sent += 1;
            return Step::Again(block);
        }
        if self.has_ended {
            self.end_is_sent = true;
            return Step::End(Frame::StreamEnd(self.totals));
        }
        if self.bytes >= WINDOW || self.kept.len() >= BLOCKS { Step::Wait } else { Step::Read }
    }

    /// Adds a block that the caller has read because of [`Step::Read`], and now sends. Returns the offset of the block.
    pub fn push(&mut self, length: usize, data: K) -> u64 {
        let offset = self.totals.bytes;
        self.kept.push_back(Kept { offset, length, data });
        self.sent = self.kept.len();
        self.bytes += length;
        self.totals.bytes += length as u64;
        self.totals.entries += 1;
        offset
    }

    /// Whether the sink has answered on this connection and has all blocks.
    pub fn is_acknowledged(&self) -> bool {
        !self.is_resuming && self.kept.is_empty()
    }

    /// Records that the input has ended.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Records that the sink has all bytes before an offset. Returns the data that was kept for these blocks.
    ///
    /// # Errors
    ///
    /// The offset is not the end of a block that was sent.
    pub fn received(&mut self, at: u64) -> Result<Vec<K>> {
        let sent = self.kept.get(self.sent).filter(|_| !self.is_resuming).map_or(self.totals.bytes, |next| next.offset);
        let is_end = at == self.totals.bytes || self.kept.iter().any(|block| block.offset == at);
        if at < self.acknowledged || at > sent || !is_end {
            return Err(Error::protocol("the receiver acknowledged data that was not sent"));
        }
        let count = self.kept.partition_point(|block| block.offset < at);
        self.sent = self.sent.saturating_sub(count);
        self.acknowledged = at;
        self.is_resuming = false;
        self.bytes -= self.kept.iter().take(count).map(|block| block.length).sum::<usize>();
        Ok(self.kept.drain(..count).map(|block| block.data).collect())
    }

    /// Compares the totals that the sink reports with those of the source.
    ///
    /// # Errors
    ///
    /// The sink has written a different number of bytes than was sent.
    pub fn done(&self, written: &Totals) -> Result<Totals> {
        if *written != self.totals || !self.end_is_sent {
            let text = format!("the receiver wrote {} of {} bytes; send it again", written.bytes, self.totals.bytes);
            return Err(Error::protocol(text));
        }
        Ok(self.totals)
    }

    /// The number of bytes that the sink has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}

/// The sink of a stream.
#[derive(Debug, Default)]
pub struct StreamSink {
    id: Option<u128>,
    /// The number of connections that this stream has used so far.
    connections: u64,
    totals: Totals,
    acknowledged: Totals,
}

impl StreamSink {
    /// Creates the state before the first connection.
    pub fn new() -> StreamSink {
        StreamSink { totals: Totals { files: 1, ..Totals::default() }, ..StreamSink::default() }
    }

    /// Counts a new connection, even if it breaks before its first frame arrives.
    pub fn connected(&mut self) {
        self.connections += 1;
    }

    /// Processes the first frame of a connection, and returns the answer to it.
    ///
    /// # Errors
    ///
    /// The source sends another stream than before, or continues a stream that this sink has not begun.
    pub fn begin(&mut self, frame: &Frame) -> Result<Frame> {
        let Frame::StreamBegin { id, again } = *frame else {
            return Err(Error::protocol("the sender sent an unexpected frame"));
        };
        if again && self.connections == 1 {
            let text = "the receiver was restarted and lacks the earlier data; start both sides again";
            return Err(Error::protocol(text));
        }
        if *self.id.get_or_insert(id) != id {
            return Err(Error::protocol("the receiver is busy with another stream; choose another port"));
        }
        self.acknowledged = self.totals;
        Ok(Frame::StreamReceived(self.totals.bytes))
    }

    /// Compares the offset of a received block with the expected one.
    ///
    /// # Errors
    ///
    /// The block is not the expected one.
    pub fn check(&self, offset: u64) -> Result<()> {
        match offset == self.totals.bytes {
            true => Ok(()),
            false => Err(Error::protocol(format!("a block is missing before offset {offset}"))),
        }
    }

    /// Records a block that is being written. Returns an acknowledgement if one is due.
    pub fn block(&mut self, length: usize) -> Option<Frame> {
        self.totals.bytes += length as u64;
        self.totals.entries += 1;
        let (ours, told) = (self.totals, self.acknowledged);
        let is_due = ours.bytes - told.bytes >= UNACKNOWLEDGED || ours.entries - told.entries >= UNACKNOWLEDGED_BLOCKS;
        is_due.then(|| {
            self.acknowledged = ours;
            Frame::StreamReceived(ours.bytes)
        })
    }

    /// Compares the totals that the source reports at the end of the stream with those of this side.
    ///
    /// # Errors
    ///
    /// Some of the data has not arrived.
    pub fn end(&self, sent: &Totals) -> Result<Totals> {
        if *sent == self.totals {
            return Ok(self.totals);
        }
        Err(Error::protocol(format!("{} of {} bytes arrived; send it again", self.totals.bytes, sent.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of the source: a frame, or a block with its offset.
    enum Sent {
        Frame(Frame),
        Block(u64, Vec<u8>),
    }

    /// Runs a stream over connections that break at random moments, and lose what is in flight. Returns the number of
    /// connections.
    fn run(seed: u64) -> usize {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % limit
        };
        let input: Vec<u8> = (0..below(2000)).map(|at| (at * 31 + at / 251) as u8).collect();
        let (mut source, mut sink) = (StreamSource::<Vec<u8>>::new(7), StreamSink::new());
        let (mut read, mut written, mut connections) = (0, Vec::new(), 0);
        loop {
            let mut to_sink = VecDeque::from([Sent::Frame(source.begin())]);
            let mut to_source = VecDeque::new();
            connections += 1;
            let is_lossy = connections < 20;
            sink.connected();
            // A connection may break before its first frame arrives.
            if is_lossy && below(20) == 0 {
                continue;
            }
            loop {
                match below(if is_lossy { 31 } else { 30 }) {
                    0..10 => match source.next_step() {
                        Step::Wait => {}
                        Step::Again(block) => to_sink.push_back(Sent::Block(block.offset, block.data.clone())),
                        Step::Read => {
                            let length = (below(9) as usize).min(input.len() - read);
                            let data = input[read..read + length].to_vec();
                            read += length;
                            if length == 0 && read == input.len() {
                                source.end();
                            } else if length != 0 {
                                to_sink.push_back(Sent::Block(source.push(length, data.clone()), data));
                            }
                        }
                        Step::End(end) => to_sink.push_back(Sent::Frame(end)),
                    },
                    10..20 => match to_sink.pop_front() {
                        None => {}
                        Some(Sent::Block(offset, data)) => {
                            sink.check(offset).unwrap();
                            to_source.extend(sink.block(data.len()));
                            written.extend(data);
                        }
                        Some(Sent::Frame(Frame::StreamEnd(totals))) => {
                            to_source.push_back(Frame::StreamDone(sink.end(&totals).unwrap()));
                        }
                        Some(Sent::Frame(frame)) => to_source.push_back(sink.begin(&frame).unwrap()),
                    },
                    20..30 => match to_source.pop_front() {
                        None => {}
                        Some(Frame::StreamDone(totals)) => {
                            assert_eq!(source.done(&totals).unwrap().bytes, input.len() as u64);
                            assert!(written == input, "seed {seed}");
                            return connections;
                        }
                        Some(Frame::StreamReceived(at)) => _ = source.received(at).unwrap(),
                        Some(frame) => panic!("{frame:?}"),
                    },
                    _ => break,
                }
            }
        }
    }

    #[test]
    fn stream_over_breaking_connections_arrives_whole() {
        let connections: usize = (0..2000).map(run).sum();
        assert!(connections > 10_000, "{connections}");
    }

    #[test]
    fn acknowledgement_of_unsent_data_is_refused() {
        let mut source = StreamSource::new(1);
        source.begin();
        assert!(matches!(source.next_step(), Step::Read));
        assert_eq!((source.push(10, ()), source.push(10, ())), (0, 10));
        for at in [5, 21, u64::MAX] {
            assert!(source.received(at).is_err(), "{at}");
        }
        assert_eq!(source.received(10).unwrap().len(), 1);
        assert!(source.received(0).is_err(), "it was acknowledged before");
        source.begin();
        assert!(matches!(source.next_step(), Step::Wait));
        assert!(source.received(0).is_err(), "it is not kept any more");
        source.received(10).unwrap();
        assert!(matches!(source.next_step(), Step::Again(block) if block.offset == 10));
    }

    #[test]
    fn source_waits_while_its_window_is_full() {
        let mut source = StreamSource::new(1);
        source.begin();
        let mut sent = 0;
        while let Step::Read = source.next_step() {
            source.push(1, ());
            sent += 1;
        }
        assert_eq!(sent, BLOCKS as u64);
        source.received(1).unwrap();
        assert!(matches!(source.next_step(), Step::Read));
        source.push(WINDOW, ());
        assert!(matches!(source.next_step(), Step::Wait));
    }

    #[test]
    fn another_stream_and_a_restarted_receiver_are_refused() {
        let begin = |id, again| Frame::StreamBegin { id, again };
        let mut sink = StreamSink::new();
        sink.connected();
        assert!(sink.begin(&begin(1, true)).is_err(), "a new receiver has no earlier data");
        let mut sink = StreamSink::new();
        sink.connected();
        sink.begin(&begin(1, false)).unwrap();
        sink.connected();
        assert!(sink.begin(&begin(2, false)).is_err());
        assert_eq!(sink.begin(&begin(1, true)).unwrap(), Frame::StreamReceived(0));
        assert!(sink.check(1).is_err(), "a block is missing");
    }
}
