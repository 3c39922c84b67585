//! canter: requests of all kinds between two connections of a core.

use std::net::SocketAddr;
use std::time::Duration;

use canter::{Connection, Core, Error, Rights};

use crate::harness::{Ended, Left};
use crate::schedules::{never, sweep};

async fn pair(core: &Core) -> Result<(Connection, Connection), Error> {
    let mut listener = core.listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let (own, address) = (core.clone(), listener.local_addr());
    let client = core.spawn(async move { own.connect(address, b"ask").await });
    let accept = async { core.accept(listener.accept().await?, b"reply").await };
    // If the client fails, no request may arrive.
    let server = core.timeout(Duration::from_secs(1), accept).await;
    let client = client.await??;
    Ok((client, server??))
}

async fn requests(core: Core) -> Result<(), Error> {
    let (client, server) = pair(&core).await?;
    let echo = core.spawn(async move {
        while let Some(message) = server.recv().await? {
            server.send(message.into_buf()).await?;
        }
        Ok::<_, Error>(())
    });
    let exposed = core.expose(8192, Rights::ReadWrite)?;
    let (remote, pool) = (exposed.remote(), core.pool(4096, 4)?);
    for number in 0..15_u8 {
        let bytes = [number; 300];
        let mut buf = pool.get().await;
        buf.fill(&bytes)?;
        drop(client.send(buf).await?);
        let answer = client.recv().await?.ok_or(Error::Closed)?;
        assert_eq!(*answer, bytes, "the echo has changed");
        let mut buf = pool.get().await;
        buf.fill(&bytes)?;
        let buf = client.write(buf, remote.slice(0, 300)?).await?;
        let mut written = [0; 300];
        exposed.read_at(0, &mut written)?;
        assert_eq!(written, bytes, "completed and not written");
        drop(client.read(buf, remote.slice(0, 300)?).await?);
        assert_eq!(client.fetch_add(remote.slice(4096, 8)?, 1).await?, u64::from(number));
    }
    drop(client);
    echo.await??;
    assert_eq!(pool.free(), 4, "a buffer is lost");
    Ok(())
}

fn all() -> Ended {
    let core =
        Core::builder("soft0").handshake(Duration::from_secs(2)).build().map_err(|error| format!("core: {error}"))?;
    match core.run(core.timeout(Duration::from_secs(20), requests(core.clone()))) {
        Ok(ended) => ended.map_err(|error| error.to_string()),
        Err(_) => panic!("hangs"),
    }
}

#[test]
fn requests_of_a_core() {
    sweep("canter", all, Left::Nothing, never);
}
