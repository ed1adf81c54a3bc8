//! The clients of a worker, with which it locks, updates and reserves.

use std::time::Duration;

use redis_concurrent::{Client, ClientBuilder, Error, Inventory, Lock, RedLockClient};

use super::message::Task;
use super::trace::Meter;
use super::variant::Variant;
use super::worker::LEASE;

/// The name of the inventory, in the run that has one.
const GATE: &str = "sale";

/// How long a server of a RedLock may take to reply.
const PATIENCE: Duration = Duration::from_millis(500);

/// The clients of one process.
pub struct Desk {
    pub client: Client,
    /// Clients of the RedLock's own servers, in the run with a RedLock.
    others: Vec<Client>,
    red: Option<RedLockClient>,
    variant: Variant,
}

/// Returns a builder with the settings that all clients of a run share. They use the default pool: ten
/// connections, for all threads.
pub fn client(url: &str, prefix: &str) -> ClientBuilder {
    Client::builder().url(url).namespace(&format!("{prefix}:lock")).lease(LEASE)
}

/// Returns the inventory of a run.
pub fn inventory(client: &Client) -> Inventory {
    client.inventory(GATE)
}

impl Desk {
    pub fn open(task: &Task, meter: &Meter) -> Result<Desk, Error> {
        let connect = |url: &String| {
            client(url, &task.prefix)
                .client_name(&format!("worker {}", task.worker))
                .observer(meter.clone())
                .connect()
        };
        let others = task.servers.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        // These servers were started for this run, and have granted nothing before.
        let red = (!others.is_empty()).then(|| RedLockClient::new(&others)).transpose()?;
        // They share a machine with all workers, which may be too busy at times to answer soon.
        let red = red.map(|red| red.skip_startup_delay().with_node_timeout(PATIENCE));
        Ok(Desk { client: connect(&task.url)?, others, red, variant: task.variant })
    }

    /// Returns the lock `name` of this run's kind, as a trait object.
    pub fn lock(&self, name: &str) -> Option<Box<dyn Lock>> {
        let client = &self.client;
        match self.variant {
            Variant::None | Variant::Optimistic | Variant::Inventory => None,
            Variant::Simple => Some(Box::new(client.simple_lock(name))),
            Variant::Reentrant | Variant::ReentrantKill => Some(Box::new(client.reentrant_lock(name))),
            Variant::Fair => Some(Box::new(client.reentrant_lock(name).fair())),
            Variant::RedLock => self.red.as_ref().map(|red| Box::new(red.lock(name)) as Box<dyn Lock>),
        }
    }

    /// How many requests the clients have sent.
    pub fn request_count(&self) -> u64 {
        self.clients().map(Client::request_count).sum()
    }

    pub fn close(&self) -> Result<(), Error> {
        self.clients().try_for_each(Client::close)
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        self.others.iter().chain([&self.client])
    }
}
