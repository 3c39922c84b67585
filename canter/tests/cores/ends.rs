//! Connections that end amid messages.

use std::net::SocketAddr;
use std::thread;

use canter::{Connection, Core, Error, Message};

use crate::cores::{address, builder, run};

const RECEIVES: u32 = 8;
/// Several packets.
const LENGTH: usize = 16 << 10;

/// Sends as many messages at once as the send queue has room for, until the connection ends.
async fn flood(core: &Core, connection: Connection) -> Result<(), Error> {
    let pool = core.pool(LENGTH, RECEIVES)?;
    let tasks: Vec<_> = (0..RECEIVES)
        .map(|_| {
            let (connection, pool) = (connection.clone(), pool.clone());
            core.spawn(async move { while connection.send(pool.get().await).await.is_ok() {} })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    Ok(())
}

/// The client: its connections are ended by the server, except for the last.
fn ask(server: SocketAddr, connections: u64) {
    run(builder().depth(RECEIVES), |core| async move {
        for _ in 0..connections {
            let connection = core.connect(server, b"").await?;
            flood(&core, connection).await?;
        }
        let (last, pool) = (core.connect(server, b"").await?, core.pool(LENGTH, 1)?);
        for _ in 0..RECEIVES {
            last.send(pool.get().await).await?;
        }
        // The end of the server.
        last.recv().await.map(drop)
    });
}

/// A queue pair that ends amid a message may have taken a receive of the shared queue.
#[test]
fn connections_that_end_amid_messages_leave_all_receives() {
    let connections = crate::cancel::seeds().min(2000);
    run(builder().receives(RECEIVES).receive_size(LENGTH).unread(RECEIVES as usize), |core| async move {
        let mut listener = core.listen(address())?;
        let address = listener.local_addr();
        let client = thread::spawn(move || ask(address, connections));
        for number in 0..connections {
            let connection = core.accept(listener.accept().await?, b"").await?;
            for _ in 0..number % 5 {
                connection.recv().await?.expect("the client sends without end");
            }
        }
        let connection = core.accept(listener.accept().await?, b"").await?;
        let mut held: Vec<Message> = Vec::new();
        for _ in 0..RECEIVES {
            held.extend(connection.recv().await?);
        }
        assert_eq!(held.len(), RECEIVES as usize);
        drop(connection);
        client.join().expect("the client succeeds");
        Ok(())
    });
}
