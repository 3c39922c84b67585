//! The other side of a test, which says what it likes.

use std::io::{self, Cursor, Read, Write};
use std::time::Duration;

use crate::control::{Connection, Failure, Host, Near, Request, Wire, measure, serve_one};
use crate::endpoint::Role;
use crate::endpoint::fake::Fake;
use crate::plan::{Given, Plan};

/// Says what it was told to, and then nothing more. What is said to it is lost.
struct Script(Cursor<Vec<u8>>);

impl Read for Script {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Script {
    fn limit(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn has_input(&mut self) -> io::Result<bool> {
        // The end comes as silence: how often a step looks depends on how long it takes.
        Ok(self.0.position() < self.0.get_ref().len() as u64)
    }
}

/// All that the other side sends: to a server where the first byte is even, and else to a client.
pub fn conversation(input: &[u8]) -> bool {
    let Some((choice, script)) = input.split_first() else { return false };
    let role = if choice.is_multiple_of(2) { Role::Server } else { Role::Client };
    talk(role, script.to_vec()).is_ok()
}

fn talk(role: Role, script: Vec<u8>) -> Result<(), Failure> {
    // It is over with the script, long before.
    let patience = Duration::from_secs(60);
    let (connection, _) = Connection::greet(Script(Cursor::new(script)), role, patience)?;
    match role {
        Role::Server => serve_one(connection, &Fake::default(), &Host::default(), &mut |_| ()),
        Role::Client => {
            let request = Request { plan: Plan::default(), given: Given::default() };
            measure(connection, Near::default(), &Fake::default(), &request, &mut ()).map(drop)
        }
    }
}
