//! Examples that must not compile, one for each rule. A first example, which compiles, shows that their common part is
//! valid.
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
//! A program cannot read a frame that is in a ring:
//!
//! ```compile_fail,E0382
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let frame = pool.take().unwrap();
//! let _ = queue.fill.batch(1).put(frame);
//! frame.bytes();
//! ```
//!
//! A program cannot write to a sent packet:
//!
//! ```compile_fail,E0382
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let mut packet = pool.take().unwrap().packet(0, 60).unwrap();
//! let _ = queue.tx.batch(1).send(packet);
//! packet.bytes_mut()[0] = 1;
//! ```
//!
//! A borrow of the bytes ends before the frame is moved into a ring:
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
//! A frame cannot be cloned:
//!
//! ```compile_fail,E0599
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let frame = pool.take().unwrap();
//! let _other = frame.clone();
//! ```
//!
//! A packet cannot be cloned:
//!
//! ```compile_fail,E0599
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let packet = pool.take().unwrap().packet(0, 60).unwrap();
//! let _other = packet.clone();
//! ```
//!
//! A frame cannot be destructured:
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
//! A ring has one batch at a time:
//!
//! ```compile_fail,E0499
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let one = queue.rx.batch(1);
//! let two = queue.rx.batch(1);
//! drop((one, two));
//! ```
//!
//! A TX ring has one batch at a time:
//!
//! ```compile_fail,E0499
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let one = queue.tx.batch(1);
//! let two = queue.tx.batch(1);
//! drop((one, two));
//! ```
//!
//! A ring cannot be woken while it has a batch:
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
//! A closure cannot keep a reference to its packet:
//!
//! ```compile_fail,E0521
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let mut kept: Option<&mut xsk::Packet> = None;
//! queue.rx.batch(1).recycle(&mut queue.fill, |packet| kept = Some(packet));
//! ```
//!
//! A ring cannot be cloned:
//!
//! ```compile_fail,E0599
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! let _other = queue.rx.clone();
//! ```
//!
//! Threads cannot share a pool:
//!
//! ```compile_fail,E0499
//! let (umem, mut pool) = xsk::Umem::builder(4).build().unwrap();
//! let (mut queue, _kernel) = xsk::simulation::queue(&umem, 4).unwrap();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| drop(pool.take()));
//!     scope.spawn(|| drop(pool.take()));
//! });
//! ```
