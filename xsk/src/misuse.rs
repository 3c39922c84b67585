//! What must not compile, one rule each. The first example shows that what they share compiles.
//!
//! ```
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! assert_eq!(queue.fill.refill(&mut pool), 4);
//! ```
//!
//! A frame is in one ring only:
//!
//! ```compile_fail,E0382
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let frame = pool.take().unwrap();
//! let _ = queue.fill.batch(1).put(frame);
//! let _ = queue.fill.batch(1).put(frame);
//! ```
//!
//! A packet is sent once:
//!
//! ```compile_fail,E0382
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let packet = pool.take().unwrap().packet(0, 60).unwrap();
//! let _ = queue.tx.batch(1).send(packet);
//! let _ = queue.tx.batch(1).send(packet);
//! ```
//!
//! A frame in a ring is not read:
//!
//! ```compile_fail,E0382
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let frame = pool.take().unwrap();
//! let _ = queue.fill.batch(1).put(frame);
//! frame.bytes();
//! ```
//!
//! A sent packet is not written:
//!
//! ```compile_fail,E0382
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let mut packet = pool.take().unwrap().packet(0, 60).unwrap();
//! let _ = queue.tx.batch(1).send(packet);
//! packet.bytes_mut()[0] = 1;
//! ```
//!
//! Bytes are not kept while the frame is given away:
//!
//! ```compile_fail,E0505
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let frame = pool.take().unwrap();
//! let bytes = frame.bytes();
//! let _ = queue.fill.batch(1).put(frame);
//! assert_eq!(bytes[0], 0);
//! ```
//!
//! Bytes do not outlive their frame:
//!
//! ```compile_fail,E0597
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let bytes = {
//!     let frame = pool.take().unwrap();
//!     frame.bytes()
//! };
//! assert_eq!(bytes[0], 0);
//! ```
//!
//! A frame is no clone:
//!
//! ```compile_fail,E0599
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let frame = pool.take().unwrap();
//! let _other = frame.clone();
//! ```
//!
//! A packet is no clone:
//!
//! ```compile_fail,E0599
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let packet = pool.take().unwrap().packet(0, 60).unwrap();
//! let _other = packet.clone();
//! ```
//!
//! A frame is not taken apart:
//!
//! ```compile_fail,E0451
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let frame = pool.take().unwrap();
//! let xsk::Frame { token } = frame;
//! ```
//!
//! A frame becomes one packet:
//!
//! ```compile_fail,E0382
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let frame = pool.take().unwrap();
//! let _one = frame.packet(0, 60);
//! let _two = frame.packet(60, 60);
//! ```
//!
//! Two batches of one ring:
//!
//! ```compile_fail,E0499
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let one = queue.rx.batch(1);
//! let two = queue.rx.batch(1);
//! drop((one, two));
//! ```
//!
//! Two batches of one TX ring:
//!
//! ```compile_fail,E0499
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let one = queue.tx.batch(1);
//! let two = queue.tx.batch(1);
//! drop((one, two));
//! ```
//!
//! A ring is not woken under its batch:
//!
//! ```compile_fail,E0499
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let batch = queue.tx.batch(1);
//! let _ = queue.tx.wake();
//! drop(batch);
//! ```
//!
//! A batch does not outlive its ring:
//!
//! ```compile_fail,E0505
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let batch = queue.rx.batch(1);
//! drop(queue);
//! drop(batch);
//! ```
//!
//! A packet of a closure is not kept:
//!
//! ```compile_fail,E0521
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let mut kept: Option<&mut xsk::Packet> = None;
//! queue.rx.batch(1).recycle(&mut queue.fill, |packet| kept = Some(packet));
//! ```
//!
//! A ring is no clone:
//!
//! ```compile_fail,E0599
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let _other = queue.rx.clone();
//! ```
//!
//! A pool is not shared by threads:
//!
//! ```compile_fail,E0499
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| drop(pool.take()));
//!     scope.spawn(|| drop(pool.take()));
//! });
//! ```
