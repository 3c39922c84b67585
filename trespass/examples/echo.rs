//! An echo server and its client.
//!
//! ```console
//! $ cargo run --example echo            # in one terminal: the server
//! $ cargo run --example echo 127.0.0.1  # in another
//! ```
#![expect(clippy::print_stderr, reason = "a program for the command line")]

use std::io::{self, Read, Write};
use std::thread;

use trespass::net::{Listener, Shutdown, Stream};

const PORT: u16 = 7471;
const HELP: &str = "\
Send a line to an echo server over RDMA, or TCP without a device, and print the reply

Usage: echo [HOST]

Without HOST, serves at port 7471 until it is stopped.
";

fn main() {
    let done = match std::env::args().nth(1) {
        None => Listener::bind(("0.0.0.0", PORT)).and_then(|listener| serve(&listener)),
        Some(option) if option == "-h" || option == "--help" => io::stdout().write_all(HELP.as_bytes()),
        Some(option) if option.starts_with('-') => {
            Err(io::Error::other(format!("unknown option {option}; see `echo --help`")))
        }
        Some(host) => Stream::connect((host.as_str(), PORT)).and_then(talk),
    };
    if let Err(error) = done {
        eprintln!("echo: {error}");
        std::process::exit(1);
    }
}

fn serve(listener: &Listener) -> io::Result<()> {
    for stream in listener.incoming() {
        let mut stream = stream?;
        thread::spawn(move || io::copy(&mut stream.try_clone()?, &mut stream));
    }
    Ok(())
}

fn talk(mut stream: Stream) -> io::Result<()> {
    stream.write_all(b"hello over ")?;
    stream.write_all(format!("{}\n", stream.stats()?).as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    io::stdout().write_all(reply.as_bytes())
}
