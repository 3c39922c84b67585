//! What the ping-pongs share, with several queue pairs: as a program with a shared receive queue plays, here with a receive
//! queue for each.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair};
use sideway_examples::exchange::Address;
use sideway_examples::pingpong::{self, Carrier, Endpoint, Kind, Link, Piece, Place, Play};
use sideway_examples::{LocalPort, Timeout};
use sideway_tests::{device, programs};

const LANES: usize = 3;
/// The game counts the receives of all lanes together, and posts when there is one for each at most. With more than that, one lane
/// could have used all of its own while the others wait for nothing any more: its peer would be told to try again for ever.
const DEPTH: u32 = LANES as u32;

/// Several reliable connections.
struct Connections(Vec<(GenericQueuePair, Address)>);

impl Connections {
    fn new(endpoint: &Endpoint) -> Result<Self> {
        let ends = (0..LANES).map(|_| endpoint.connection(endpoint.pd().create_qp_builder()));
        Ok(Self(ends.collect::<Result<_>>()?))
    }
}

impl Link for Connections {
    fn addresses(&self) -> Vec<Address> {
        self.0.iter().map(|(_, address)| *address).collect()
    }

    fn connect(&mut self, port: &LocalPort, remotes: &[Address]) -> Result<()> {
        ensure!(remotes.len() == LANES);
        let mut pairs = self.0.iter().zip(remotes);
        pairs.try_for_each(|((qp, local), remote)| port.connect(qp, Mtu::Mtu1024, local, remote))
    }
}

impl Carrier for Connections {
    fn lanes(&self) -> usize {
        LANES
    }

    fn lane(&self, qp_num: u32) -> Option<usize> {
        self.0.iter().position(|(qp, _)| qp.qp_number() == qp_num)
    }

    unsafe fn post_send(&mut self, lane: usize, wr_id: u64, message: Piece) -> Result<()> {
        let (qp, _) = self.0.get_mut(lane).context("there is no such lane")?;
        // SAFETY: the caller's promise: the queue pair goes with `self`.
        unsafe { pingpong::post_send(qp, wr_id, message) }
    }

    unsafe fn post_receives(&mut self, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()> {
        for receive in receives {
            // Above the two lowest bits stands a number of its own, so that each queue pair gets back what it has used.
            let lane = (receive.0 >> 2) as usize % LANES;
            let (qp, _) = self.0.get_mut(lane).context("there is no such lane")?;
            // SAFETY: as above.
            unsafe { pingpong::post_receives(qp, &mut [receive].into_iter()) }?;
        }
        Ok(())
    }
}

/// One side; returns what it prints.
fn side(server: Option<&str>, port: u16, size: u32, iters: u32, events: bool) -> Result<String> {
    let place = Place {
        server: server.map(str::to_owned),
        port,
        ib_dev: Some(device::name()),
        ib_port: device::PORT,
        sl: 0,
        gid_idx: None,
    };
    let play = Play {
        rx_depth: DEPTH,
        iters,
        events,
        chk: true,
        ts: false,
        new_send: false,
        cq: Kind::Generic,
        qp: Kind::Generic,
        timeout: Timeout(Some(Duration::from_secs(20))),
    };
    let endpoint = Endpoint::new::<Connections>(&place, &play, size, LANES as u32)?;
    let link = Connections::new(&endpoint)?;
    let mut out = Vec::new();
    pingpong::play(endpoint, link, &mut out)?;
    Ok(String::from_utf8(out)?)
}

/// A client that comes before its server is there tries again.
fn client(port: u16, size: u32, iters: u32, events: bool) -> Result<String> {
    loop {
        match side(Some("127.0.0.1"), port, size, iters, events) {
            Err(error) if error.to_string().contains("nobody listens") => thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

#[test]
fn every_lane_gets_its_own_messages() {
    let mut games = 0;
    // As many messages as lanes, fewer, and many; every message is checked.
    for (size, iters, events) in [(64, 3, false), (64, 2, true), (1000, 300, false), (1000, 301, true)] {
        let port = programs::port();
        let server = thread::spawn(move || side(None, port, size, iters, events));
        let client = client(port, size, iters, events);
        let server = server.join().expect("the server does not panic");
        for (who, said) in [("server", server), ("client", client)] {
            let said = said.unwrap_or_else(|error| panic!("the {who} with {iters} of {size} bytes: {error:#}"));
            assert_eq!(said.matches("local address:").count(), LANES, "{said}");
            assert_eq!(said.matches("remote address:").count(), LANES, "{said}");
            assert!(said.contains(&format!("{iters} iters in ")), "{said}");
        }
        games += 1;
    }
    assert_eq!(games, 4);
}
