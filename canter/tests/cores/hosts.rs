//! Connections between two network namespaces, which simulate two hosts without RDMA hardware: iWARP.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::Stdio;

use canter::{Batch, Core, Error, Remote, Rights};
use sideway_tests::hosts::Hosts;

/// The variable that selects the role of [`host`]: `server`, or the server's port.
const ROLE: &str = "CANTER_TEST_ROLE";

/// Runs in a child process.
#[test]
fn host() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let core = Core::builder("softiw0").build().expect("softiw0 has room for a core");
    core.run(async {
        match role.parse() {
            Ok(port) => {
                ask(
                    &core,
                    SocketAddr::from((Hosts::ADDRESSES[0].parse::<std::net::IpAddr>().expect("an address"), port)),
                )
                .await
            }
            Err(_) => serve(&core).await,
        }
    })
    .expect("no call fails");
}

async fn serve(core: &Core) -> Result<(), Error> {
    let mut listener = core.listen(SocketAddr::from(([0, 0, 0, 0], 0)))?;
    writeln!(std::io::stderr(), "port {}", listener.local_addr().port()).expect("the test reads it");
    let mut exposed = core.expose(4096, Rights::ReadWrite)?;
    exposed.write_at(0, &[7; 2048])?;
    let connection = core.accept(listener.accept().await?, &exposed.remote().to_bytes()).await?;
    // The peer's word that it has written.
    while let Some(message) = connection.recv().await? {
        let mut bytes = vec![0; message.len()];
        exposed.read_at(2048, &mut bytes)?;
        assert_eq!(&*message, bytes);
        connection.send(message.into_buf()).await?;
    }
    Ok(())
}

async fn ask(core: &Core, server: SocketAddr) -> Result<(), Error> {
    let connection = core.connect(server, b"").await?;
    let remote = Remote::from_bytes(connection.private_data().first_chunk().expect("the server sends 20 bytes"));
    let pool = core.pool(2048, 4)?;
    // Reads land in other memory over iWARP, also those of a batch.
    let read = connection.read(pool.get().await, remote.slice(0, 2048)?).await?;
    assert_eq!(*read, [7; 2048]);
    drop(read);
    let mut batch = Batch::new();
    batch.read(pool.get().await, remote.slice(0, 2048)?);
    connection.submit(&mut batch).await?;
    assert_eq!(batch.drain().next().as_deref(), Some(&[7; 2048][..]));
    for round in 0..20_u8 {
        let mut buf = pool.get().await;
        buf.fill(&[round; 1500])?;
        let buf = connection.write(buf, remote.slice(2048, 1500)?).await?;
        connection.send(buf).await?;
        assert_eq!(connection.recv().await?.as_deref(), Some(&[round; 1500][..]));
    }
    let refused = connection.fetch_add(remote, 1).await;
    assert!(matches!(refused, Err(Error::Post(_) | Error::Request { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn two_hosts_meet_over_iwarp() {
    let Some(hosts) = Hosts::new() else { return };
    let start = |host: usize, role: &str| {
        let mut command = hosts.command(host, std::env::current_exe().expect("this program has a path"));
        command.args(["hosts::host", "--exact", "--nocapture"]).env(ROLE, role).stderr(Stdio::piped()).spawn()
    };
    let mut server = start(0, "server").expect("the program starts");
    let mut lines = BufReader::new(server.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    let port = lines.find_map(|line| Some(line.strip_prefix("port ")?.to_owned())).expect("the server listens");
    let client = start(1, &port).expect("the program starts").wait_with_output().expect("it ends");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let left: Vec<String> = lines.collect();
    assert!(server.wait().expect("it ends").success(), "{left:?}");
}
