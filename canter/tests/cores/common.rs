//! Functions that the tests share.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use canter::{Builder, Connection, Core, Error};
use sideway::ibverbs::device::DeviceList;

/// Returns a builder on the RDMA device to test on.
pub(crate) fn builder() -> Builder {
    Core::builder(&std::env::var("SIDEWAY_TEST_DEVICE").unwrap_or_else(|_| "soft0".to_owned()))
}

/// Returns an address of the RDMA device to test on, with port 0.
pub(crate) fn address() -> SocketAddr {
    let Ok(name) = std::env::var("SIDEWAY_TEST_DEVICE") else { return SocketAddr::from(([127, 0, 0, 1], 0)) };
    let devices = DeviceList::new().expect("there are devices");
    let context = devices.find(&name).expect("the device is there").open().expect("it opens");
    let gids = context.query_gid_table().expect("it has GIDs");
    let address = gids.iter().find_map(|entry| entry.gid().ipv4()).expect("it has an IPv4 address");
    SocketAddr::from((address, 0))
}

/// Returns the ends of a connection of one core.
pub(crate) async fn pair(core: &Core) -> Result<(Connection, Connection), Error> {
    let mut listener = core.listen(address())?;
    let (own, address) = (core.clone(), listener.local_addr());
    let client = core.spawn(async move { own.connect(address, b"ask").await });
    let server = core.accept(listener.accept().await?, b"reply").await?;
    Ok((client.await??, server))
}

/// Runs a test on a core, with a limit.
pub(crate) fn run<F: Future<Output = Result<(), Error>>>(builder: Builder, test: impl FnOnce(Core) -> F) {
    let core = builder.build().expect("the device has room for a core");
    let ended = core.run(core.timeout(Duration::from_secs(60), test(core.clone())));
    ended.expect("the test ends in time").expect("no call fails");
}
