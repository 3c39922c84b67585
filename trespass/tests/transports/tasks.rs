//! Tests streams in tokio, on its single-threaded runtime.

use crate::common::{bytes, on_both, pair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trespass::net::Stream;

#[test]
fn tasks_read_and_write_at_once() {
    on_both(|transport| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (left, right) = pair(transport);
            let (mut left, mut right) = (Stream::from(left), Stream::from(right));
            let echo = tokio::spawn(async move {
                let (mut reader, mut writer) = (right.clone(), &mut right);
                let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
                copied
            });
            let sent = bytes(1 << 20, 5);
            let mut writer = left.clone();
            let expected = sent.clone();
            let writing = tokio::spawn(async move {
                writer.write_all(&sent).await.unwrap();
                writer.flush().await.unwrap();
                AsyncWriteExt::shutdown(&mut writer).await.unwrap();
            });
            let mut got = Vec::new();
            left.read_to_end(&mut got).await.unwrap();
            assert!(got == expected);
            writing.await.unwrap();
            assert_eq!(echo.await.unwrap(), 1 << 20);
        });
    });
}
