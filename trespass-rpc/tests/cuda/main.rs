//! Tests memory of a real GPU as regions of trespass, attachments and targets. Without a GPU, the tests report that
//! they did not run; if `SOFTRNIC_TEST_CUDA=1` is set, they fail instead.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ptr;
use std::sync::Mutex;

use rdma_cuda::Cuda;
use trespass::{Acceptor, Connection, Grant, Handle, RegionKey, Transport};
use trespass_rpc::{Attachment, Channel, Endpoint, Memory, Options, Server, Target};

fn options() -> Options {
    softrnic::register().unwrap();
    let mut options = Options::default();
    options.worker.transport = Transport::Rdma;
    options.worker.memory = 64 << 20;
    options
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 255) as u8).collect()
}

#[test]
fn puts_and_gets_move_gpu_memory() {
    const LENGTH: usize = 5 << 20;
    let Some(cuda) = Cuda::open() else { return };
    let [server, client] = [(); 2].map(|()| Handle::new(&options().worker).unwrap());
    let acceptor = Acceptor::bind_on(&server, "127.0.0.1:0").unwrap();
    let client = Connection::connect_on(&client, acceptor.local_addr(), None).unwrap();
    let server = acceptor.accept().unwrap();
    let (ours, theirs) = (cuda.allocate(LENGTH), cuda.allocate(LENGTH));
    let data = pattern(LENGTH);
    cuda.set(ours, &data);

    let at = |address: u64| ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: both allocations outlive their regions, and no references to the memory of the GPU exist.
    let (mine, other) = unsafe { (client.region_at(at(ours), LENGTH), server.region_at(at(theirs), LENGTH)) };
    let (mine, other) = (mine.unwrap(), other.unwrap());
    let grant = Grant::writable(&server, &other, 0..LENGTH).unwrap();
    server.send(&grant.key().to_bytes()).unwrap();
    let key = RegionKey::from_bytes(&client.recv().unwrap().unwrap()).unwrap();

    client.batch().put((&mine, 0..LENGTH), (&key, 0)).notify(1).submit().unwrap().wait().unwrap();
    assert_eq!(server.recv().unwrap().unwrap()[..], 1_u64.to_le_bytes());
    assert!(cuda.get(theirs, LENGTH) == data);
    client.batch().get((&mine, 3..100_003), (&key, 70_001)).submit().unwrap().wait().unwrap();
    assert!(cuda.get(ours + 3, 100_000) == data[70_001..170_001]);
    assert!(cuda.get(ours, 3) == data[..3]);

    grant.revoke().unwrap();
    drop((mine, other));
    cuda.free(ours);
    cuda.free(theirs);
}

/// Stores one value.
#[trespass_rpc::service(name = "test.Weights")]
trait Weights {
    async fn put(&self, value: Attachment) -> Result<Vec<u8>, String>;
    async fn get(&self, into: Target) -> Result<(), String>;
}

#[derive(Default)]
struct Kept(Mutex<Option<Memory>>);

impl Weights for Kept {
    async fn put(&self, value: Attachment) -> Result<Vec<u8>, String> {
        let memory = value.read().await.map_err(|error| error.to_string())?;
        let bytes = memory.to_vec().map_err(|error| error.to_string());
        *self.0.lock().unwrap() = Some(memory);
        bytes
    }

    async fn get(&self, into: Target) -> Result<(), String> {
        let memory = self.0.lock().unwrap().clone().ok_or("nothing is kept")?;
        into.write_from(0, &memory, 0..memory.len()).await.map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn attachments_and_targets_are_in_gpu_memory() {
    let Some(cuda) = Cuda::open() else { return };
    let serving = Server::new(WeightsServer::new(Kept::default()))
        .bind_on(&Endpoint::spawn(&options()).unwrap(), "127.0.0.1:0")
        .await
        .unwrap();
    let endpoint = Endpoint::spawn(&options()).unwrap();
    let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
    let client = WeightsClient::over(channel).unwrap();
    for length in [1, 100, 100_000, 700_000] {
        let address = cuda.allocate(2 * length);
        let data = pattern(length);
        cuda.set(address, &data);
        let registrar = client.channel().registrar().unwrap();
        // SAFETY: the allocation outlives the region, and no references to the memory of the GPU exist.
        let region = unsafe { registrar.region_at(ptr::with_exposed_provenance_mut(address as usize), 2 * length) };
        let memory = Memory::of_region(region.unwrap());
        assert_eq!(client.put(Attachment::of(&memory, 0..length).unwrap()).await, Ok(data.clone()));
        client.get(Target::of(&memory, length..2 * length).unwrap()).await.unwrap();
        assert!(cuda.get(address + length as u64, length) == data);
        drop(memory);
        cuda.free(address);
    }
}
