//! Inline data, and borrowed inline data, which only the driver copies: what arrives, and what remains of unposted
//! batches.

use sideway::ibverbs::queue_pair::{Connected, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::PostSendError;
use sideway_tests::recording::World;

use crate::batch;
use crate::requests::support::{Batch, SIGNALED, on_each_kind, sized};

batch!(Pieces of Connected {}, |_this, guard| {
    guard.construct_wr(1, SIGNALED).setup_send().setup_borrowed_inline_data(b"sixteen bytes, 1");
    guard.construct_wr(2, SIGNALED).setup_write(5, 0x50).setup_borrowed_inline_data(b"");
    guard.construct_wr(3, SIGNALED).setup_send_imm(7).setup_borrowed_inline_data(b"three");
});

batch!(TooLong of Connected {}, |_this, guard| {
    guard.construct_wr(4, SIGNALED).setup_send().setup_borrowed_inline_data(b"fits");
    guard.construct_wr(5, SIGNALED).setup_send().setup_borrowed_inline_data(b"seventeen bytes, 2");
});

/// Posts nothing: the borrowed data is dropped before the next batch starts.
struct Dropped<'a, B>(&'a B);

impl<B: Batch<Connected>> Batch<Connected> for Dropped<'_, B> {
    fn post<Q: QueuePair<Service = Connected>>(&self, qp: &mut Q) -> Result<(), PostSendError> {
        {
            let bytes = vec![b'd'; 9];
            let mut guard = qp.start_post_send();
            for wr_id in 10..13 {
                guard.construct_wr(wr_id, SIGNALED).setup_send().setup_borrowed_inline_data(&bytes);
            }
            drop(guard);
        }
        self.0.post(qp)
    }
}

#[test]
fn borrowed_inline_bytes_arrive() {
    let world = World::new();
    let builder = sized(&world, world.pd.create_qp_builder());
    for outcome in on_each_kind(&world, &builder, &Dropped(&Pieces {}), &Pieces {}) {
        outcome.result.unwrap();
        let arrived: Vec<_> = outcome.posted.iter().map(|one| (one.wr_id, one.inline.clone(), one.length)).collect();
        let expected =
            [(1, Some(b"sixteen bytes, 1".to_vec()), 16), (2, Some(Vec::new()), 0), (3, Some(b"three".to_vec()), 5)];
        assert_eq!(arrived, expected, "{}", outcome.kind);
    }
}

#[test]
fn bytes_of_every_length_are_copied() {
    const MOST: u8 = 130;
    let world = World::new();
    let mut builder = sized(&world, world.pd.create_qp_builder());
    let mut qp = builder.setup_max_inline_data(MOST.into()).build().unwrap();
    // Miri is slow: only lengths at which the copy changes.
    let changes = [0, 15, 16, 17, 32, 33, 64, 65, MOST];
    for length in (0..=MOST).filter(|length| !cfg!(miri) || changes.contains(length)) {
        // The data has the exact length, so Miri detects an access beyond it.
        let bytes: Box<[u8]> = (0..length).map(|at| length ^ at.wrapping_mul(29)).collect();
        let mut guard = qp.start_post_send();
        // A request does not share its memory with its neighbours.
        for wr_id in 0..3 {
            let request = guard.construct_wr(wr_id, SIGNALED).setup_send();
            if wr_id == 1 {
                request.setup_inline_data(&bytes)
            } else {
                request.setup_inline_data(&[0xee; MOST as usize])
            }
        }
        guard.post().unwrap();
        let arrived: Vec<_> = world.recording.posted().into_iter().filter_map(|one| one.inline).collect();
        assert_eq!(arrived, [vec![0xee; MOST.into()], bytes.to_vec(), vec![0xee; MOST.into()]], "{length}");
    }
}

#[test]
fn request_beyond_the_capacity_is_refused() {
    let world = World::new();
    let mut qp = sized(&world, world.pd.create_qp_builder()).build().unwrap();
    for _ in 0..2 {
        world.recording.calls();
        let error = TooLong {}.post(&mut qp).unwrap_err();
        assert_eq!((error.failed_request().unwrap().wr_id, error.posted()), (5, Some(0)));
        assert!(
            error.to_string().contains("the inline data has 18 bytes, but the queue pair was built for 16"),
            "{error}"
        );
        assert_eq!(world.recording.verbs(), [""; 0]);
        Pieces {}.post(&mut qp).unwrap();
        assert_eq!(world.recording.posted().iter().map(|one| one.wr_id).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
