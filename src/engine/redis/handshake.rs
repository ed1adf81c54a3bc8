//! What is sent on a new connection before any request: the login, the database, the library's name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redis::{Client, Connection, ErrorKind, RedisResult, Value, cmd};

use crate::clock::Moment;
use crate::engine::redis::credentials::Credentials;

/// Asks for the credentials, connects, logs in, and sends the library's name (`CLIENT SETINFO`) unless the
/// client has set another one or none. Blocks for `limit` at most, but for the credentials' provider: the
/// `redis` crate's own handshake would wait that long for each of its replies, even after one that did not
/// arrive, so only the login is left to it. The rest of `limit` becomes the timeout of the connection's reads
/// and writes.
pub(crate) fn connect(
    client: &Client,
    credentials: &Credentials,
    limit: Duration,
) -> RedisResult<Connection> {
    let until = Moment::now().after(limit);
    let info = credentials.given_to(client.get_connection_info(), limit)?;
    let settings = info.redis_settings();
    let mut requests = Vec::new();
    if settings.db() != 0 {
        requests.push(cmd("SELECT").arg(settings.db()).get_packed_command());
    }
    let selects = requests.len();
    if !settings.skip_set_lib_name() {
        let name = settings.lib_name().unwrap_or("redis-concurrent");
        let version = settings.lib_ver().unwrap_or(env!("CARGO_PKG_VERSION"));
        for (what, is) in [("LIB-NAME", name), ("LIB-VER", version)] {
            requests.push(cmd("CLIENT").arg("SETINFO").arg(what).arg(is).get_packed_command());
        }
    }
    let login = settings.clone().set_db(0).set_skip_set_lib_name();
    // A request may be written before the last one was answered: see `Connection::unread`.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.clone().set_redis_settings(login).set_tcp_settings(tcp))?;
    let mut connection = dialled(&client, left(until)).map_err(|e| credentials.refused(e))?;
    limit_to(&connection, until)?;
    connection.send_packed_command(&requests.concat())?;
    let mut refused = None;
    for i in 0..requests.len() {
        limit_to(&connection, until)?;
        match connection.recv_response() {
            Ok(Value::ServerError(e)) if i < selects => return Err(e.into()),
            // The server may not have the command, or its user may not use it. If it closes the connection,
            // this says why.
            Ok(Value::ServerError(e)) => refused = Some(e),
            Ok(_) => {}
            Err(e) => return Err(refused.map_or(e, Into::into)),
        }
    }
    limit_to(&connection, until)?;
    Ok(connection)
}

/// Connects by the `redis` crate, where rustls panics if other crates of the build have enabled several of its
/// cryptography providers and none was installed.
fn dialled(client: &Client, limit: Duration) -> RedisResult<Connection> {
    #[cfg(feature = "tls")]
    if matches!(client.get_connection_info().addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // An error says that the program has installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    catch_unwind(AssertUnwindSafe(|| client.get_connection_with_timeout(limit))).unwrap_or_else(|_| {
        const WHY: &str = "a dependency panicked while it connected, with the message on standard error";
        Err((ErrorKind::InvalidClientConfig, WHY).into())
    })
}

fn limit_to(connection: &Connection, until: Moment) -> RedisResult<()> {
    let left = Some(left(until));
    connection.set_read_timeout(left)?;
    connection.set_write_timeout(left)
}

/// A timeout of zero would mean none.
fn left(until: Moment) -> Duration {
    until.since(Moment::now()).max(Duration::from_millis(1))
}
