//! Messages with trespass, without RPC: requests of N bytes and replies of 13 bytes, with one thread on each side.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use trespass::{Acceptor, Connection, Handle};

use crate::measure::{Job, Row};
use crate::ours;

fn handle(name: &str) -> Result<Handle> {
    let mut options = ours::options(name)?;
    options.worker.spin = options.spin;
    Ok(Handle::new(&options.worker)?)
}

pub fn serve(name: &str) -> Result<()> {
    let acceptor = Acceptor::bind_on(&handle(name)?, "127.0.0.1:0")?;
    println!("{}", acceptor.local_addr());
    loop {
        let connection = acceptor.accept()?;
        while let Ok(Some(_)) = connection.recv() {
            connection.send(b"hello, caller")?;
        }
    }
}

/// As many messages are in flight as there are callers.
pub fn call(name: &str, address: &str, job: &Job) -> Result<Row> {
    let connection = Connection::connect_on(&handle(name)?, address, None)?;
    exchange(&connection, job, Duration::from_millis(200))?;
    let begun = Instant::now();
    let latencies = exchange(&connection, job, job.time)?;
    Row::of(latencies, begun.elapsed())
}

fn exchange(connection: &Connection, job: &Job, time: Duration) -> Result<Vec<u32>> {
    let (message, begun) = (vec![7; job.size], Instant::now());
    let (mut sent, mut latencies) = (VecDeque::new(), Vec::with_capacity(1 << 20));
    loop {
        while sent.len() < job.callers && begun.elapsed() < time {
            sent.push_back(Instant::now());
            connection.send(&message)?;
        }
        let Some(at) = sent.pop_front() else { return Ok(latencies) };
        anyhow::ensure!(connection.recv()?.is_some(), "the server closed the connection");
        latencies.push(u32::try_from(at.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
}
