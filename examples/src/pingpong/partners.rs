//! How the two programs tell each other where their queue pairs are: one line for each, in the same order on both sides.

use std::iter;

use anyhow::{Result, bail};
use sideway::ibverbs::address::Gid;

use crate::exchange::{Address, Peer};

/// What stands for a queue pair that a program could have, and has not.
const NONE: Address = Address { lid: 0, qp_num: 0, psn: 0, gid: Gid { raw: [0; 16] } };

/// Tells where the queue pairs of this side are, in so many addresses where that does not depend on them.
pub(super) fn send(peer: &mut Peer, addresses: &[Address], told: Option<usize>) -> Result<()> {
    let count = told.unwrap_or(addresses.len());
    let filled = addresses.iter().chain(iter::repeat(&NONE)).take(count);
    filled.into_iter().try_for_each(|address| peer.send_address(address))
}

/// Learns where so many queue pairs of the peer are.
pub(super) fn receive(peer: &mut Peer, count: usize, told: Option<usize>) -> Result<Vec<Address>> {
    let all = (0..told.unwrap_or(count)).map(|_| peer.receive_address()).collect::<Result<_>>()?;
    matching(all, count)
}

fn matching(mut all: Vec<Address>, count: usize) -> Result<Vec<Address>> {
    // No queue pair of a program has the number 0.
    let theirs = all.iter().take_while(|address| address.qp_num != 0).count();
    if theirs != count {
        bail!("the peer has {theirs} queue pairs and this side {count}: give both sides the same --num-qp");
    }
    all.truncate(count);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_the_same_number_of_queue_pairs() {
        let mut all = vec![NONE; 256];
        all[..3].fill(Address { qp_num: 7, ..NONE });
        assert_eq!(matching(all.clone(), 3).unwrap(), [Address { qp_num: 7, ..NONE }; 3]);
        for count in [2, 4] {
            let error = matching(all.clone(), count).unwrap_err().to_string();
            assert!(error.contains(&format!("the peer has 3 queue pairs and this side {count}")), "{error}");
        }
        all.fill(Address { qp_num: 7, ..NONE });
        assert_eq!(matching(all, 256).unwrap().len(), 256);
    }
}
