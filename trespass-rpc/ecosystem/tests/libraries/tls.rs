//! Tests TLS: which peers are accepted and refused, a relay between two peers, and a replay.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::sync::oneshot;
use trespass::{Acceptor, Connection, Handle, Kind, Transport};
use trespass_rpc::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use trespass_rpc::rustls::server::WebPkiClientVerifier;
use trespass_rpc::rustls::{ClientConfig, RootCertStore, ServerConfig};
use trespass_rpc::{
    Attachment, Certainty, Channel, Context, Endpoint, Options, Pool, RpcError, Security, Server, Serving, Status,
    Target, Tls,
};

use trespass_rpc_ecosystem::{ADDRESS, HOST, LONG, on_both};

/// A service that returns the certificates of its callers.
#[trespass_rpc::service(name = "test.Callers")]
trait Callers {
    /// Returns the caller's certificate and the sum of the attachment's bytes, and copies the bytes to the target.
    async fn caller(&self, cx: &Context, value: Attachment, into: Target) -> Result<(Vec<u8>, u64), String>;
}

#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl Callers for Counted {
    async fn caller(&self, cx: &Context, value: Attachment, into: Target) -> Result<(Vec<u8>, u64), String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let bytes = value.to_vec().await.map_err(|error| error.to_string())?;
        into.write(0, &bytes).await.map_err(|error| error.to_string())?;
        let certificate = cx.peer_certificates().first().map_or_else(Vec::new, |leaf| leaf.to_vec());
        Ok((certificate, bytes.iter().map(|byte| u64::from(*byte)).sum()))
    }
}

/// A certificate authority.
struct Authority(CertificateDer<'static>, Issuer<'static, KeyPair>);

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self(certificate.der().clone(), Issuer::new(params, key))
    }

    fn issue(&self, name: &str, until: i32) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(until, 1, 1));
        let certificate = params.signed_by(&key, &self.1).unwrap();
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.clone()).unwrap();
        roots
    }

    /// Returns the configuration of a server that requires client certificates of this authority.
    fn server(&self, (certificate, key): Identity) -> Option<Arc<ServerConfig>> {
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots())).build().unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        Some(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()))
    }

    fn client(&self, identity: Option<Identity>) -> Option<Arc<ClientConfig>> {
        let config = ClientConfig::builder().with_root_certificates(self.roots());
        Some(Arc::new(match identity {
            Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => config.with_no_client_auth(),
        }))
    }
}

fn with(options: &Options, tls: Tls) -> Options {
    let mut options = options.clone();
    options.tls = tls;
    options
}

/// Returns the options of a server and of a client that trust each other, and the client's certificate.
fn good(options: &Options) -> (Options, Options, Vec<u8>) {
    let authority = Authority::new("ours");
    let server = Tls { server: authority.server(authority.issue(&HOST, 2100)), client: None };
    let identity = authority.issue("client", 2100);
    let certificate = identity.0.to_vec();
    let client = Tls { client: authority.client(Some(identity)), server: None };
    (with(options, server), with(options, client), certificate)
}

async fn serve(options: &Options) -> (Serving, Arc<Counted>) {
    let counted = Arc::new(Counted::default());
    let server = Server::new(CallersServer::shared(Arc::clone(&counted)));
    (server.bind_on(&Endpoint::spawn(options).unwrap(), &ADDRESS).await.unwrap(), counted)
}

async fn connect(options: &Options, address: &str) -> std::io::Result<Channel> {
    Channel::connect_on(&Endpoint::spawn(options).unwrap(), address).await
}

/// Connects, and returns the reason why the connection was refused.
async fn refusal(server: &Options, client: &Options) -> RpcError {
    let (serving, counted) = serve(server).await;
    let address = serving.local_addr().to_string();
    let error = connect(client, &address).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
    let refused = error.get_ref().unwrap().downcast_ref::<RpcError>().unwrap().clone();
    assert_eq!((refused.status, refused.certainty), (Status::UNAUTHENTICATED, Certainty::NotSent));
    assert!(!refused.is_retryable(true));
    // A pool passes the same status to its calls.
    let pool = Pool::new(&Endpoint::spawn(client).unwrap(), address);
    assert_eq!(pool.channel().await.unwrap_err().status, Status::UNAUTHENTICATED);
    assert_eq!(counted.0.load(Ordering::SeqCst), 0);
    refused
}

/// Makes calls with short and long attachments.
async fn call(channel: Channel) -> Vec<u8> {
    let client = CallersClient::over(channel.clone()).unwrap();
    let mut certificate = Vec::new();
    for length in [10, 300_000, 5_000_000] {
        let memory = channel.alloc(length).unwrap();
        let into = Target::of(&memory, 0..length).unwrap();
        let value = Attachment::from(vec![7; length]);
        let (caller, sum) = client.caller(value, into).await.unwrap();
        assert_eq!(sum, 7 * length as u64);
        assert!(memory.to_vec().unwrap().iter().all(|byte| *byte == 7));
        certificate = caller;
    }
    certificate
}

#[test]
fn peers_with_certificates_of_one_authority_call_each_other() {
    on_both(|options| async move {
        let (server, client, certificate) = good(&options);
        let (serving, counted) = serve(&server).await;
        let channel = connect(&client, &serving.local_addr().to_string()).await.unwrap();
        let expected = match channel.transport().kind {
            Kind::Rdma => (Security::Authenticated, "peer authenticated by TLS, not encrypted"),
            _ => (Security::Encrypted, "encrypted by TLS"),
        };
        assert_eq!(channel.transport().security, expected.0);
        assert!(channel.transport().to_string().contains(expected.1));
        assert_eq!(channel.peer_certificates().len(), 1);
        assert_eq!(call(channel).await, certificate);
        assert_eq!(counted.0.load(Ordering::SeqCst), 3);
        assert_eq!(serving.drain(LONG).await, 0);
    });
}

#[test]
fn peers_without_the_right_certificate_are_refused_with_the_reason() {
    on_both(|options| async move {
        let (ours, other) = (Authority::new("ours"), Authority::new("another"));
        let server = |identity| with(&options, Tls { server: ours.server(identity), client: None });
        let client = |config| with(&options, Tls { client: config, server: None });
        let (valid, own) = (ours.issue(&HOST, 2100), ours.issue("client", 2100));
        let own = || Some((own.0.clone(), own.1.clone_key()));
        let valid = || (valid.0.clone(), valid.1.clone_key());
        let cases = [
            (server(valid()), client(ours.client(None)), "CertificateRequired"),
            (server(valid()), client(ours.client(Some(other.issue("client", 2100)))), "UnknownCA"),
            (server(valid()), client(ours.client(Some(ours.issue("client", 2001)))), "CertificateExpired"),
            (server(valid()), client(other.client(own())), "UnknownIssuer"),
            (server(ours.issue(&HOST, 2001)), client(ours.client(own())), "expired"),
            (server(ours.issue("another.name", 2100)), client(ours.client(own())), "not valid for name"),
            (server(valid()), options.clone(), "only one side uses TLS"),
            (options.clone(), client(ours.client(own())), "only one side uses TLS"),
        ];
        for (server, client, reason) in &cases {
            let refused = refusal(server, client).await;
            assert!(refused.detail.contains(reason), "{reason}: {refused}");
        }
    });
}

/// A peer between client and server, which forwards all messages of one connection.
struct Relay {
    address: String,
    /// The messages of the client.
    captured: Arc<Mutex<Vec<Vec<u8>>>>,
    /// The code and the reason with which the server closed the connection.
    close: oneshot::Receiver<Option<(u32, String)>>,
}

fn relay(options: &Options, server: SocketAddr) -> Relay {
    let handle = Handle::new(&options.worker).unwrap();
    let acceptor = Acceptor::bind_on(&handle, ADDRESS.as_str()).unwrap();
    let address = acceptor.local_addr().to_string();
    let captured = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&captured);
    let (closed, close) = oneshot::channel();
    thread::spawn(move || {
        let client = Arc::new(acceptor.accept().unwrap());
        let server = Arc::new(Connection::connect_on(&handle, server, Some(LONG)).unwrap());
        let forward = |from: &Connection, to: &Connection, keep: &dyn Fn(&[u8])| {
            while let Ok(Some(message)) = from.recv() {
                keep(&message);
                if to.send(&message).is_err() {
                    break;
                }
            }
            _ = to.shutdown();
        };
        let (from, to) = (Arc::clone(&server), Arc::clone(&client));
        let answers = thread::spawn(move || forward(&from, &to, &|_| ()));
        forward(&client, &server, &|message| kept.lock().unwrap().push(message.to_vec()));
        answers.join().unwrap();
        // Fails if the test has ended.
        _ = closed.send(server.peer_close());
    });
    Relay { address, captured, close }
}

#[test]
fn relay_is_refused_on_rdma_and_reads_no_plain_text_on_tcp() {
    on_both(|options| async move {
        let (server, client, certificate) = good(&options);
        let (serving, counted) = serve(&server).await;
        let Relay { address, captured, close } = relay(&options, serving.local_addr());
        match connect(&client, &address).await {
            Ok(channel) => {
                assert_eq!(channel.transport().kind, Kind::Tcp);
                assert_eq!(call(channel).await, certificate);
                let sent = captured.lock().unwrap().concat();
                assert!(sent.len() > 5_000_000);
                assert!(!sent.windows(16).any(|part| part == [7; 16]), "the relay has bytes of an attachment");
                assert!(!sent.windows(4).any(|part| part == b"test"), "the relay has a name");
            }
            Err(error) => {
                assert_eq!(options.worker.transport, Transport::Rdma, "{error}");
                let (code, reason) = close.await.unwrap().unwrap();
                assert_eq!(code, Status::UNAUTHENTICATED.0, "{reason}");
                assert!(reason.contains("may be relayed"), "{reason}");
                assert_eq!(counted.0.load(Ordering::SeqCst), 0);
            }
        }
    });
}

#[test]
fn replayed_connection_is_refused() {
    on_both(|options| async move {
        let (server, client, _) = good(&options);
        let (serving, counted) = serve(&server).await;
        let Relay { address, captured, .. } = relay(&options, serving.local_addr());
        if let Ok(channel) = connect(&client, &address).await {
            call(channel).await;
        }
        let before = counted.0.load(Ordering::SeqCst);
        let messages = std::mem::take(&mut *captured.lock().unwrap());
        assert!(messages.len() >= 2, "the handshake and the hello were captured");
        let (handle, server) = (Handle::new(&options.worker).unwrap(), serving.local_addr());
        let replay = tokio::task::spawn_blocking(move || {
            let connection = Connection::connect_on(&handle, server, Some(LONG)).unwrap();
            for message in messages {
                if connection.send(&message).is_err() {
                    break;
                }
            }
            while let Ok(Some(_)) = connection.recv() {}
            connection.peer_close()
        });
        let (code, reason) = replay.await.unwrap().unwrap();
        assert_eq!(code, Status::UNAUTHENTICATED.0);
        assert!(reason.contains("TLS handshake failed"), "{reason}");
        assert_eq!(counted.0.load(Ordering::SeqCst), before);
    });
}

/// Runs the tests of this module again, on softrnic's iWARP device.
#[test]
fn peers_on_iwarp_call_each_other_and_refuse_relays() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["tls::", "--skip", "on_iwarp"]).env("SOFTRNIC_DEVICES", "softiw0");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(output.status.success() && passed == 4, "{passed} passed\n{text}");
}
