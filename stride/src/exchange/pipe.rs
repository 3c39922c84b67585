//! A stream of bytes within the process, for both sides in one and for tests.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::wire::Wire;

/// The most bytes that wait in one direction.
const ROOM: usize = 1 << 16;

/// One direction.
#[derive(Debug, Default)]
struct Half {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    is_closed: bool,
}

impl Half {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` says so, for so long at most.
    fn wait(&self, time: Duration, ready: impl Fn(&State) -> bool) -> io::Result<MutexGuard<'_, State>> {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| !ready(state));
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        if result.timed_out() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(state) }
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }
}

/// An end of a pipe.
#[derive(Debug)]
pub struct Pipe {
    from: Arc<Half>,
    to: Arc<Half>,
    limit: Duration,
}

/// Both ends of a new one.
pub fn pipe() -> (Pipe, Pipe) {
    let (one, other) = (Arc::<Half>::default(), Arc::<Half>::default());
    let limit = Duration::from_secs(3600);
    (Pipe { from: one.clone(), to: other.clone(), limit }, Pipe { from: other, to: one, limit })
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.from.wait(self.limit, |state| !state.bytes.is_empty() || state.is_closed)?;
        let count = state.bytes.read(into)?;
        drop(state);
        self.from.changed.notify_all();
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.to.wait(self.limit, |state| state.bytes.len() < ROOM || state.is_closed)?;
        if state.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(ROOM - state.bytes.len());
        state.bytes.extend(bytes.iter().take(count));
        drop(state);
        self.to.changed.notify_all();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Pipe {
    fn limit(&mut self, time: Duration) -> io::Result<()> {
        self.limit = time;
        Ok(())
    }

    fn has_input(&mut self) -> io::Result<bool> {
        let state = self.from.state();
        Ok(!state.bytes.is_empty() || state.is_closed)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.from.close();
        self.to.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_and_ends_are_seen() {
        let (mut one, mut other) = pipe();
        assert!(!other.has_input().unwrap());
        one.write_all(b"abc").unwrap();
        assert!(other.has_input().unwrap());
        drop(one);
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"abc");
        assert_eq!(other.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn silence_and_fullness_end() {
        let (mut one, _other) = pipe();
        one.limit(Duration::from_millis(1)).unwrap();
        assert_eq!(one.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(one.write(&vec![0; ROOM + 1]).unwrap(), ROOM);
        assert_eq!(one.write(&[0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
