//! Attacks on `rdcp --server --root DIR`, as a forced command of sshd.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use rdma_pipe::copy::{CopyOptions, Progress, Target, receive};
use rdma_pipe::error::Error;
use rdma_pipe::launch::{LinkRequest, Reply, Request, Role};
use rdma_pipe::link::{Options, Patience, connect};
use rdma_pipe::proto::{Frame, Peer, Purpose};

use crate::common::Place;

/// `rdcp --server --root DIR`, as a forced command of sshd: the client's paths cannot leave DIR.
#[test]
fn forced_command_serves_only_its_root() {
    let place = Place::new();
    let root = place.path("root");
    place.write("root/sub/own", "own");
    place.write("secret", "secret");
    place.write("new", "new");
    symlink(place.path("secret"), root.join("link")).unwrap();
    symlink(place.path("."), root.join("up")).unwrap();
    let shell = place.write(
        "bin/forced",
        format!("#!/bin/sh\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' exec rdcp --server --root {}\n", root.display()),
    );
    std::fs::set_permissions(shell, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let rdcp = |from: &str, to: &str| place.run("rdcp", ["-e", "forced", "-r", from, to]);
    // For the client, DIR is `/`. Relative paths begin at DIR too.
    rdcp("h:/sub/own", "got").expect(0);
    assert_eq!(place.read("got"), b"own");
    rdcp("new", "h:sub").expect(0);
    rdcp("new", "h:/other").expect(0);
    rdcp("new", "h:").expect(0);
    assert_eq!((place.read("root/sub/new"), place.read("root/other")), (b"new".to_vec(), b"new".to_vec()));
    assert_eq!(place.names("root"), ["link", "new", "other", "sub", "up"]);
    for from in ["h:../secret", "h:up/secret", "h:/etc/passwd", "h:sub/../../secret"] {
        rdcp(from, "stolen").expect(23);
    }
    // What a link names is outside, the link itself is not.
    place.run("rdcp", ["-e", "forced", "h:link", "stolen"]).expect(23);
    rdcp("h:link", "copied").expect(0);
    assert!(place.path("copied").is_symlink());
    std::fs::remove_file(place.path("copied")).unwrap();
    for to in ["h:../stolen", "h:up/stolen", "h:up", "h:up/", "h:link"] {
        rdcp("new", to).expect(23);
    }
    assert_eq!(place.read("secret"), b"secret");
    let ran = place.run("rdpipe", ["-e", "forced", "h:id"]);
    assert!(ran.status != 0 && ran.err.contains("commands are not allowed here"), "{ran:?}");
    assert_eq!(place.names("."), ["bin", "got", "new", "root", "secret"]);
}

/// A running `rdcp --server --root root`, to which a request was sent.
struct Server {
    process: Child,
    replies: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(place: &Place, role: Role, options: &Options) -> Server {
        let request = Request { key: b"key".to_vec(), role, link: LinkRequest::new(options, 0) };
        let mut process = place.command("rdcp", ["--server", "--root", "root"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut line = serde_json::to_vec(&request).unwrap();
        line.push(b'\n');
        process.stdin.as_mut().unwrap().write_all(&line).unwrap();
        let replies = BufReader::new(process.stdout.take().unwrap()).lines();
        Server { process, replies }
    }

    /// The next reply, other than the progress.
    fn reply(&mut self) -> Reply {
        loop {
            let line = self.replies.next().unwrap().unwrap();
            // The first line is empty.
            match (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap()) {
                None | Some(Reply::Progress(..)) => {}
                Some(reply) => return reply,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A client of a forced command could otherwise learn which hosts and ports the server reaches.
#[test]
fn forced_command_connects_to_no_other_host() {
    let place = Place::with_tcp();
    place.write("root/own", "own");
    let options = Options { transport: trespass::Transport::Tcp, ..Options::default() };
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let peer = || Peer {
        name: "other".to_owned(),
        addresses: vec![other.local_addr().unwrap().to_string()],
        key: b"key".to_vec(),
    };
    let copy = CopyOptions { recursive: true, ..CopyOptions::default() };
    let serve = |role: Role| {
        let mut server = Server::start(&place, role, &options);
        let first = server.reply();
        let Reply::Listening { port, .. } = first else { return first };
        let patience = Patience::Coming(Duration::from_secs(60));
        let link =
            connect(&Peer::unnamed(format!("127.0.0.1:{port}"), b"key"), Purpose::Send, patience, &options).unwrap();
        link.sender.frame(&Frame::Begin { again: false, chain: vec![peer()] }).unwrap();
        server.reply()
    };
    let source =
        Role::Source { paths: vec![b"own".to_vec()], options: copy.clone(), to: vec![peer()], into: Vec::new() };
    let sink = Role::Sink { path: b"copy".to_vec(), sources: (1, false), options: copy };
    for role in [source, sink] {
        let last = serve(role);
        let Reply::Failed(failure) = last else { panic!("{last:?}") };
        assert!(Error::from(failure).to_string().contains("connects to no other host"));
        assert_eq!(other.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

/// Runs `rdcp --server --root`, and requests a path by a hand-made message. Calls `meanwhile` after the server's check
/// and before the client connects; the client then receives into `stolen`. Returns the server's last reply.
fn pulled(place: &Place, path: &str, copy: &CopyOptions, meanwhile: impl FnOnce()) -> Reply {
    let timeout = Duration::from_secs(60);
    let options = Options { timeout, transport: trespass::Transport::Tcp, ..Options::default() };
    let role = Role::Source { paths: vec![path.into()], options: copy.clone(), to: Vec::new(), into: Vec::new() };
    let mut server = Server::start(place, role, &options);
    let Reply::Listening { port, .. } = server.reply() else { panic!("the server does not listen") };
    meanwhile();
    let target = Target::open(&place.path("stolen"), 1, true, false).unwrap();
    let sender = Peer::unnamed(format!("127.0.0.1:{port}"), b"key");
    let accept = || connect(&sender, Purpose::Receive, Patience::Coming(Duration::from_secs(2)), &options);
    // The server may reject the connection.
    _ = receive(accept, &target, None, copy, &options, &Progress::default());
    server.reply()
}

/// The client of a forced command sends paths of `--files-from` that lead out of DIR.
#[test]
fn listed_paths_do_not_lead_out_of_the_root() {
    for path in ["../secret", "sub/../../secret", "sub/..", ".."] {
        let place = Place::with_tcp();
        place.write("secret", "secret");
        place.write("root/sub/own", "own");
        let copy = CopyOptions { files_from: Some(vec![path.into()]), recursive: true, ..CopyOptions::default() };
        let reply = pulled(&place, ".", &copy, || {});
        let Reply::Failed(failure) = reply else { panic!("{path}: {reply:?}") };
        assert!(Error::from(failure).to_string().contains("leads out of the source"), "{path}");
        assert!(place.names("stolen").is_empty(), "{path}");
    }
}

/// A client that may write below DIR replaces a file or directory by a link after the server has checked it.
#[test]
fn source_that_is_swapped_for_a_link_does_not_lead_out_of_the_root() {
    for (path, swapped, recursive) in
        [("f", "f", false), ("f", "f", true), ("sub", "sub", true), ("sub/own", "sub", true)]
    {
        let place = Place::with_tcp();
        for name in ["secret/own", "root/f", "root/sub/own"] {
            place.write(name, if name == "secret/own" { "secret" } else { "own" });
        }
        let target = if swapped == "f" { "../secret/own" } else { "../secret" };
        let copy = CopyOptions { recursive, ..CopyOptions::default() };
        let reply = pulled(&place, path, &copy, || {
            std::fs::rename(place.path("root").join(swapped), place.path("old")).unwrap();
            symlink(target, place.path("root").join(swapped)).unwrap();
        });
        // In a tree, the link itself is an entry.
        let expected = if recursive && path == swapped { 0 } else { 23 };
        assert!(matches!(&reply, Reply::Finished { status, .. } if *status == expected), "{path}: {reply:?}");
        let stolen = place.names("stolen");
        assert!(stolen.iter().all(|name| place.path("stolen").join(name).is_symlink()), "{path}: {stolen:?}");
        assert_eq!(stolen.len(), usize::from(expected == 0), "{path}");
    }
}
