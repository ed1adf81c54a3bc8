//! The builder of a client with custom settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use redis::{ConnectionAddr, ConnectionInfo};
#[cfg(feature = "tls")]
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::address::{Address, Sentinels, address_at};
use crate::client::Client;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::credentials::Credentials;
use crate::engine::redis::sentinels::SentinelClient;
use crate::error::Error;
use crate::observe::{Observer, Observers};
use crate::settings::{Config, bad};

/// Builds a [`Client`] with custom settings. All times are [`Duration`]s.
///
/// ```no_run
/// # fn main() -> Result<(), redis_concurrent::Error> {
/// use std::time::Duration;
/// use redis_concurrent::Client;
///
/// let client = Client::builder()
///     .url("redis://127.0.0.1/")
///     .lease(Duration::from_secs(10))
///     .client_name("checkout")
///     .connect()?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    config: Config,
    renew_every: Option<Duration>,
    waiter_timeout: Option<Duration>,
    command_timeout: Option<Duration>,
    /// `None` until one is given.
    address: Option<Result<Address, Error>>,
    credentials: Credentials,
    sentinel_credentials: Credentials,
    #[cfg(feature = "tls")]
    certificates: Certificates,
    observers: Observers,
}

impl Client {
    /// Creates a client of the server at `url`, with the default settings, and connects.
    ///
    /// # Errors
    /// Those of [`connect`](ClientBuilder::connect): `InvalidInput` if `url` is not valid, for instance, and
    /// `Unavailable` if the server cannot be reached or rejects this client.
    pub fn connect(url: &str) -> Result<Client, Error> {
        Client::builder().url(url).connect()
    }

    /// Returns a builder for a client with custom settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

shows!(ClientBuilder as "ClientBuilder", |it| "config": it.config);

impl ClientBuilder {
    /// The server, as a URL: `redis://[user:password@]host[:port][/db][?protocol=resp3]`,
    /// `redis+unix:///path/to/socket` (on the server's own host the faster way), or with the feature `tls`
    /// `rediss://…`.
    /// Special characters of the user name and the password are percent-encoded (`/` is `%2F`, `@` is `%40`).
    /// The database may also be in the query, `?db=3`; a part that has no meaning is an error.
    ///
    /// Or the primary that sentinels name:
    /// `redis+sentinel://[user:password@]host[:port],host[:port],…/name[/db]` (`rediss+sentinel://…` for
    /// TLS). User, password and database apply to the servers; `?sentinel_user=…&sentinel_password=…` to the
    /// sentinels, whose port is 26379 by default. To open a connection, the client asks one sentinel after the
    /// other, for a quarter of a second each and the [connect timeout](Self::connect_timeout) in all, and checks
    /// that the server they name is a primary. One thread per sentinel listens to it: when another server becomes
    /// the primary, connections to the former one are closed at once, and the holds are renewed at the new one,
    /// which reports whether it knows them: see [failover](crate::guide::failover).
    ///
    /// Or a Redis Cluster, given by some of its nodes:
    /// `redis+cluster://[user:password@]host[:port],host[:port],…` (`rediss+cluster://…` for TLS). One reachable
    /// node, primary or replica, is enough: it names the others, which are then used at the addresses that it
    /// reports. Each lock is kept on the primary of its slot, and stays with the slot when that moves or a replica
    /// is promoted: see [operations](crate::guide::operations#redis-cluster). A node that is not part of a
    /// cluster, or is part of another one than the rest, is reported by [`connect`](Self::connect), as
    /// `InvalidInput`; after [`connect_later`](Self::connect_later) it never gets a lock.
    ///
    /// With either, the [unreachable timeout](Self::unreachable_timeout) should be longer than a failover: the
    /// sentinels' `down-after-milliseconds`, or the cluster's node timeout, plus a few seconds.
    ///
    /// An invalid URL is reported by [`connect`](Self::connect), as `InvalidInput`.
    pub fn url(mut self, url: &str) -> Self {
        self.address = Some(address_at(url));
        self
    }

    /// What the client logs in to its servers with, in place of the user and the password of their addresses: for
    /// passwords that are rotated, and for tokens that end. `provider` is asked for each new connection, and
    /// returns the user (`default` where there is only a password) and the password. Connections that are open
    /// are not logged in again: one that the server ends is replaced. Default none.
    ///
    /// It is called by the thread that connects, which is a call's or one of the library's, by several at a time,
    /// and again at each attempt while a server is away. It blocks that thread, and holds are not renewed
    /// meanwhile; the time counts in the [connect timeout](Self::connect_timeout). So it should return what is
    /// at hand, and must not use this client. If it fails, panics or takes longer, or if the server refuses what
    /// it returned, that is as if the server were away: [`Unavailable`](crate::ErrorKind::Unavailable), which
    /// names it, from calls that may not wait for so long.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), redis_concurrent::Error> {
    /// use std::fs::read_to_string;
    /// use redis_concurrent::Client;
    ///
    /// let client = Client::builder()
    ///     .url("redis://10.0.0.1/")
    ///     .credentials(|| read_to_string("/run/secrets/redis").map(|it| ("app".into(), it.trim().into())))
    ///     .connect()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<E: fmt::Display>(
        mut self,
        provider: impl Fn() -> Result<(String, String), E> + Send + Sync + 'static,
    ) -> Self {
        self.credentials = Credentials::of(provider);
        self
    }

    /// The same for the sentinels, which have users and passwords of their own. The time counts in the quarter
    /// of a second that each of them has.
    pub fn sentinel_credentials<E: fmt::Display>(
        mut self,
        provider: impl Fn() -> Result<(String, String), E> + Send + Sync + 'static,
    ) -> Self {
        self.sentinel_credentials = Credentials::of(provider);
        self
    }

    /// The certificate authorities trusted to sign the server's certificate, as certificates in PEM: a
    /// company's own, for instance. Default: Mozilla's. The address must be `rediss://`.
    ///
    /// Invalid certificates are reported by [`connect`](Self::connect), as `InvalidInput`.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn tls_root_certificates(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.certificates.roots = Some(pem.as_ref().to_vec());
        self
    }

    /// This client's certificate, followed by any intermediate ones, and its private key, both in PEM: for a
    /// server that requires one. Default none. The address must be `rediss://`.
    ///
    /// An invalid certificate or key is reported by [`connect`](Self::connect), as `InvalidInput`.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn tls_client_certificate(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let (client_cert, client_key) = (chain.as_ref().to_vec(), key.as_ref().to_vec());
        self.certificates.own = Some(redis::ClientTlsConfig { client_cert, client_key });
        self
    }

    /// The maximum number of pooled connections, besides those of the client's threads: 1 to 65,535, 10 by
    /// default. They are opened on demand; if all are in use, a request waits for one within its timeout, and
    /// is then sent in one write together with the other waiting requests.
    ///
    /// More connections mean shorter waits if the network is slow. Fewer mean less work for the operating
    /// system and for Redis, and so more requests per second if these are busy: `docs/design/benchmarks.md` has
    /// figures.
    #[doc(alias = "pool")]
    pub fn max_connections(mut self, most: u32) -> Self {
        self.config.max_connections = most;
        self
    }

    /// Whether dropping a guard waits until Redis has replied, as [`unlock`](crate::Guard::unlock) does. Default
    /// `false`: the release is sent, and its reply is [read later](crate::Guard#dropping-it).
    pub fn drop_waits(mut self, waits: bool) -> Self {
        self.config.drop_waits = waits;
        self
    }

    /// How long Redis keeps a hold that is not renewed, for instance because its process died. Default 30 s,
    /// at least 100 ms, at most a year.
    #[doc(alias = "watchdog")]
    #[doc(alias = "lockWatchdogTimeout")]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// How often a lease is renewed. Default: a third of the lease; at least 1 ms, at most half the
    /// lease.
    pub fn renew_every(mut self, every: Duration) -> Self {
        self.renew_every = Some(every);
        self
    }

    /// How long threads of this process may hand a lock on among themselves before other processes get their
    /// turn. Default 1 ms; zero makes every lock [fair].
    ///
    /// [fair]: crate::RedisLock::fair
    pub fn local_handoff(mut self, local_handoff: Duration) -> Self {
        self.config.local_handoff = local_handoff;
        self
    }

    /// How long a waiter may miss heartbeats before it loses its queue position. Default 3 s, or the [command
    /// timeout](ClientBuilder::command_timeout) if that is longer. At least 100 ms, at most a year, and not
    /// shorter than the command timeout: a waiter must not lose its position while one of its requests may
    /// still be answered.
    ///
    /// It is also the first lease of a waiter that was just admitted (at least a second), unless the lease it
    /// asked for is shorter; the first renewal, after a sixth of that time, extends it to the full lease. So
    /// a waiter that died just before its turn delays those behind it by no more than this, and a waiter that
    /// cannot reach Redis within this time loses its hold as early.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.waiter_timeout = Some(timeout);
        self
    }

    /// The prefix of all keys and channels. Default `rc`; clients that share locks need the same namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.config.namespace);
        self
    }

    /// The name of this process in [`holder`](crate::RedisLock::holder) and `redis-concurrent ls` (as its
    /// label), and of its connections in `CLIENT LIST` (there with `_` in place of spaces and non-ASCII
    /// characters), if its Redis user may use `CLIENT SETNAME`. Default empty: the connections have no name.
    pub fn client_name(mut self, client_name: &str) -> Self {
        client_name.clone_into(&mut self.config.client_name);
        self
    }

    /// How long opening a connection may take. Default 1 s, at least 1 ms.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// How long the reply to one request may take. Default 2 s, or the [waiter
    /// timeout](ClientBuilder::waiter_timeout) if that is shorter; at least 1 ms, not longer than the waiter timeout.
    ///
    /// A thread inside a request cannot be cancelled: it notices a cancellation after at most this time.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = Some(timeout);
        self
    }

    /// How long a `lock()` without a deadline tolerates a server that cannot be reached, or cannot serve it,
    /// before it returns [`Unavailable`](crate::ErrorKind::Unavailable), counted from the first request that
    /// had no reply. No request of such a call waits longer than that, or 100 ms. Default 10 s. Timed methods
    /// run to their deadline.
    pub fn unreachable_timeout(mut self, timeout: Duration) -> Self {
        self.config.unreachable_timeout = timeout;
        self
    }

    /// The longest time for which a hold is renewed. An older one, because its guard was leaked or its work
    /// hangs, is no longer renewed and is lost when its lease expires, as its guard and the observer report.
    /// Checked at each renewal. Threads that share a read hold keep it until the most recent of them exceeds
    /// this time, and no other thread joins once the oldest does. Default unlimited. A hold that its guard
    /// renews by [`renew_for`](crate::Guard::renew_for) lasts for the lease given there.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.config.max_hold = Some(longest);
        self
    }

    /// How long a thread that holds locks waits for another one before it looks for a deadlock: a circle of
    /// threads, in any processes, each of which waits for a lock that the next one holds. The one of them that
    /// began to wait last gets [`Deadlock`](crate::ErrorKind::Deadlock), usually one heartbeat later (a third of the
    /// waiter timeout), the others go on. Default 1 s, at least 100 ms; `Duration::MAX` switches it off. A shorter wait,
    /// and a thread that holds nothing, cost nothing. Followed are the holds that a thread has by this client, and not
    /// those of owned guards, which belong to no thread.
    pub fn deadlock_timeout(mut self, timeout: Duration) -> Self {
        self.config.deadlock_timeout = timeout;
        self
    }

    /// Adds an observer of this client's locks; each call adds one. Default none.
    pub fn observer(self, observer: impl Observer) -> Self {
        self.observers.add(observer);
        self
    }

    /// Creates the client and opens one connection (for a cluster, one to each named node, one after
    /// another), so that a wrong address or password, or a server that cannot serve this library, is reported
    /// here. Usually blocks for at most the connect timeout plus the command timeout, for each of them.
    ///
    /// Logs a warning if the server may evict locks, or has no publish/subscribe.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid setting; for a server that is older than Redis 6.2, is a Sentinel, is
    /// one of several primaries of a Redis Cluster, or has no scripts; and if the sentinels do not know the
    /// primary. `Unavailable` if the server cannot be reached or is a replica, or if this process cannot
    /// start a thread.
    pub fn connect(self) -> Result<Client, Error> {
        let client = self.connect_later()?;
        client.probe()?;
        Ok(client)
    }

    /// Creates the client without connecting: for a server that may be down right now, such as one of those
    /// of a [`RedLock`](crate::RedLock). A wrong address or password is reported by the first call.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid setting, `Unavailable` if this process cannot start a thread.
    pub fn connect_later(mut self) -> Result<Client, Error> {
        self.config.renew_every = self.renew_every.unwrap_or(self.config.lease / 3);
        self.config.fit(self.waiter_timeout, self.command_timeout);
        self.config.check().map_err(bad)?;
        self.credentials = self.credentials.named(&self.config.client_name);
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let Address { mut server, mut sentinels, nodes } =
            self.address.take().ok_or_else(|| bad("no server was given: call `url`"))??;
        #[cfg(feature = "tls")]
        for info in sentinels.iter_mut().flat_map(|it| &mut it.nodes).chain([&mut server]) {
            let tls = self.certificates.given_to(info);
            self.credentials.tls = tls.map_err(|e| bad(format!("these certificates cannot be used: {e}")))?;
            self.sentinel_credentials.tls.clone_from(&self.credentials.tls);
        }
        let sentinels = sentinels.map(|Sentinels { master, nodes }| {
            Arc::new(SentinelClient::new(master, nodes, self.sentinel_credentials))
        });
        let manager = ConnectionManager::new(server, sentinels, self.credentials, &self.config);
        Client::start(self.config, manager, &nodes, self.observers)
    }
}

/// The certificates that a client was given.
#[cfg(feature = "tls")]
#[derive(Clone, Default)]
struct Certificates {
    /// PEM: the authorities that may have signed a server's certificate.
    roots: Option<Vec<u8>>,
    /// PEM: this client's certificate and its key.
    own: Option<redis::ClientTlsConfig>,
}

#[cfg(feature = "tls")]
impl Certificates {
    /// Returns what TLS needs to connect there, if that is by TLS. What leads there gets the certificates, too: programs connect
    /// by the addresses that they are [told](Client::primaries).
    fn given_to(
        &self,
        info: &mut ConnectionInfo,
    ) -> Result<Option<Arc<ClientConfig>>, Box<dyn std::error::Error>> {
        let (root_cert, client_tls) = (self.roots.clone(), self.own.clone());
        let by_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        if !by_tls && root_cert.is_none() && client_tls.is_none() {
            return Ok(None);
        }
        let certificates = redis::TlsCertificates { client_tls, root_cert };
        *info = redis::Client::build_with_tls(info.clone(), certificates)?.get_connection_info().clone();
        let all = |pem: &[u8], whose: &str| {
            let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
            let none = format!("no certificate in the PEM text of {whose}");
            found.ok().filter(|found| !found.is_empty()).ok_or(none)
        };
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Some(pem) => {
                all(pem, "the root certificates")?.into_iter().try_for_each(|root| roots.add(root))?
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        // Where other crates of the build have enabled several providers, rustls panics if none was installed. An error says
        // that the program has installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let Some(own) = &self.own else { return Ok(Some(config.with_no_client_auth().into())) };
        let key = PrivateKeyDer::from_pem_slice(&own.client_key)?;
        let chain = all(&own.client_cert, "the client's certificate")?;
        Ok(Some(config.with_client_auth_cert(chain, key)?.into()))
    }
}
