//! What a QP calls.

use std::sync::Weak;
use std::thread;
use std::time::Instant;

use super::{Link, Machine, PAUSE};
use crate::wire::packet::{Packet as Carried, Payload};
use crate::wire::transport::{Carrier, Dedicated, Stuck, Wake};

/// How often packets are passed to a full socket before a QP is destroyed or reset.
const LAST_TRIES: usize = 100;

impl Carrier for Link {
    fn put(&self, packet: &Carried, payload: Payload<'_>) -> Result<(), Stuck> {
        let mut state = self.state();
        let is_ended = state.is_ended;
        let read = |to: &mut Vec<u8>| payload.append_to(to, packet.length()).map_err(|_| Stuck::Fault);
        let put = match (packet, &mut state.machine) {
            (Carried::Part(_), _) if is_ended => Err(Stuck::Lost),
            (Carried::Part(part), Machine::Reliable(machine)) => machine.0.add(part, read),
            (Carried::Part(part), Machine::Unreliable(machine)) => machine.add(part, read),
            (Carried::Response(response), Machine::Reliable(machine)) => machine.1.respond(response, read),
            (Carried::Response(_), Machine::Unreliable(_)) => Ok(()),
        };
        match (put, packet, &state.machine) {
            (Err(Stuck::Full), Carried::Part(_), _) => state.lacks_space.requests = true,
            (Err(Stuck::Full), Carried::Response(_), _) => state.lacks_space.responses = true,
            // The request completes at once, so the QP calls `flush` for no requests in flight.
            (Ok(()), Carried::Part(part), Machine::Unreliable(_)) if part.is_last() => self.send(state, Instant::now()),
            _ => {}
        }
        put
    }

    fn wake(&self, waiting: Weak<dyn Wake>) {
        self.state().waiter = Some(waiting);
    }

    fn taken(&self) -> u64 {
        match &self.state().machine {
            // While the connection waits for its turn, it is not silent.
            Machine::Reliable(machine) => machine.0.acknowledged.wrapping_add(machine.0.window.progress_of_others()),
            Machine::Unreliable(_) => 0,
        }
    }

    fn flush(&self) {
        self.send(self.state(), Instant::now());
    }
}

impl Dedicated for Link {
    fn settle(&self) {
        self.engine.settle();
    }

    fn end(&self) {
        let mut state = self.state();
        state.is_ended = true;
        if let Machine::Reliable(machine) = &mut state.machine {
            machine.0.window.end();
        }
        drop(state);
        self.engine.pass_turns(&self.window, Instant::now());
    }

    fn set_depths(&self, own: u8, peer: u8) {
        if let Machine::Reliable(machine) = &mut self.state().machine {
            machine.0.set_max_reads(own.into());
            machine.1.set_depth(peer.into());
        }
    }

    fn leave(&self) {
        self.end();
        // The socket may be full. Requests of an unreliable connection have completed.
        for _ in 0..LAST_TRIES {
            self.flush();
            if self.state().held.is_none() {
                break;
            }
            thread::sleep(PAUSE);
        }
        self.engine.forget(self.ends.number);
    }
}
