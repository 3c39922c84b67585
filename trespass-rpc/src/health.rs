//! The health service. It reports which services of a server accept calls.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

/// Whether a service accepts calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// The server has no such service.
    Unknown,
    /// The service accepts calls.
    Serving,
    /// The service accepts no calls at the moment.
    NotServing,
}

/// The service that reports the health of a server's services.
#[trespass_rpc::service(name = "trespass.Health")]
pub trait Healths {
    /// Returns the health of a service by its name, or of the whole server if the name is empty.
    #[idempotent]
    async fn check(&self, service: &str) -> Result<Health, ()>;
}

/// Sets the health that the server reports. Clones refer to the same server.
///
/// ```
/// use trespass_rpc::{Health, HealthReporter, HealthsClient, Server};
///
/// # #[derive(Default)]
/// # struct Store;
/// # #[trespass_rpc::service(name = "example.Kv")]
/// # pub trait Kv { async fn get(&self, key: &str) -> Result<String, ()>; }
/// # impl Kv for Store { async fn get(&self, key: &str) -> Result<String, ()> { Ok(key.to_owned()) } }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let health = HealthReporter::default();
/// let server = Server::new(KvServer::new(Store::default())).and(health.service());
/// let serving = server.bind("127.0.0.1:0").await?;
/// health.set("example.Kv", Health::Serving);
///
/// let healths = HealthsClient::connect(&serving.local_addr().to_string()).await?;
/// assert!(matches!(healths.check("example.Kv").await, Ok(Health::Serving)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct HealthReporter {
    known: Arc<RwLock<HashMap<String, Health>>>,
}

impl HealthReporter {
    /// Returns the service to add to the server.
    pub fn service(&self) -> HealthsServer<Self> {
        HealthsServer::new(self.clone())
    }

    /// Sets the health of a service, or of the whole server if the name is empty.
    pub fn set(&self, service: &str, health: Health) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(service.to_owned(), health);
    }
}

impl Healths for HealthReporter {
    async fn check(&self, service: &str) -> Result<Health, ()> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // A server that answers is `Serving`, unless the program has set another health.
        let default = if service.is_empty() { Health::Serving } else { Health::Unknown };
        Ok(known.get(service).copied().unwrap_or(default))
    }
}
