//! How the two programs tell each other where their queue pairs are: the C program sends as many addresses as it could have queue
//! pairs, and fills up with zeros.

use anyhow::{Result, bail};
use sideway::ibverbs::address::Gid;
use sideway_examples::exchange::{Address, Peer};

/// Addresses that are sent, whatever the number of queue pairs.
pub(crate) const MOST: usize = 256;

const NONE: Address = Address { lid: 0, qp_num: 0, psn: 0, gid: Gid { raw: [0; 16] } };

/// Tells where the queue pairs of this side are.
///
/// # Errors
///
/// The peer has gone.
pub(crate) fn send(peer: &mut Peer, addresses: &[Address]) -> Result<()> {
    let filled = addresses.iter().chain(std::iter::repeat(&NONE)).take(MOST);
    filled.into_iter().try_for_each(|address| peer.send_address(address))
}

/// Learns where so many queue pairs of the peer are.
///
/// # Errors
///
/// The peer has gone, is silent, talks of something else, or has another number of queue pairs.
pub(crate) fn receive(peer: &mut Peer, count: usize) -> Result<Vec<Address>> {
    let all = (0..MOST).map(|_| peer.receive_address()).collect::<Result<_>>()?;
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
        let mut all = vec![NONE; MOST];
        all[..3].fill(Address { qp_num: 7, ..NONE });
        assert_eq!(matching(all.clone(), 3).unwrap(), [Address { qp_num: 7, ..NONE }; 3]);
        for count in [2, 4] {
            let error = matching(all.clone(), count).unwrap_err().to_string();
            assert!(error.contains(&format!("the peer has 3 queue pairs and this side {count}")), "{error}");
        }
        all.fill(Address { qp_num: 7, ..NONE });
        assert_eq!(matching(all, MOST).unwrap().len(), MOST);
    }
}
