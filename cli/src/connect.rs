//! The servers: from the options, the environment, or a file that nobody else may read.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use redis_concurrent::redis::{self, ConnectionInfo, IntoConnectionInfo};
use redis_concurrent::{Client, ClientBuilder};

use crate::args::Global;
use crate::exit::{Failure, code};

/// The timeout for opening a connection of our own, and for each of its replies.
const LIMIT: Duration = Duration::from_secs(5);

/// Where the locks are, and what their keys begin with.
pub struct Servers {
    address: Address,
    namespace: String,
}

/// Includes the password.
enum Address {
    Server(Box<ConnectionInfo>),
    /// A URL of sentinels, or of a cluster.
    Several(String),
}

impl Servers {
    /// Returns the servers of the options. A file is read only once, here, as it may be a pipe.
    pub fn of(global: &Global) -> Result<Servers, Failure> {
        let url = match (&global.url_file, &global.url) {
            (Some(file), _) => first_line(file)?,
            (None, Some(url)) => url.clone(),
            (None, None) => "redis://127.0.0.1/".to_owned(),
        };
        Ok(Servers { address: address(url)?, namespace: global.namespace.clone() })
    }

    /// Returns a builder for a client of the library, without further settings.
    pub fn builder(&self) -> ClientBuilder {
        let builder = Client::builder().namespace(&self.namespace);
        match &self.address {
            Address::Server(info) => builder.connection_info((**info).clone()),
            Address::Several(url) => builder.url(url),
        }
    }

    pub fn connect(&self) -> Result<Client, Failure> {
        self.connected(self.builder())
    }

    /// Connects with such a builder. If a single server cannot be reached, the failure names its address.
    pub fn connected(&self, builder: ClientBuilder) -> Result<Client, Failure> {
        builder.connect().map_err(|error| {
            let failure = Failure::from(error);
            match &self.address {
                Address::Server(info) => failure.at(info.addr()),
                Address::Several(_) => failure,
            }
        })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the URL is that of a cluster.
    pub fn is_cluster(&self) -> bool {
        let of_cluster =
            |url: &str| url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("+cluster"));
        matches!(&self.address, Address::Several(url) if of_cluster(url))
    }

    /// Returns how to connect to the servers that have locks. A server that the URL names itself is not asked
    /// whether it can have any.
    pub fn primaries(&self) -> Result<Vec<ConnectionInfo>, Failure> {
        match &self.address {
            Address::Server(info) => Ok(vec![(**info).clone()]),
            Address::Several(_) => Ok(self.connect()?.primaries()?),
        }
    }
}

fn address(url: String) -> Result<Address, Failure> {
    let bad = |why: String| Failure::new(code::CONFIG, format!("the URL of the server: {why}"));
    if url.is_empty() {
        return Err(bad("it is empty".to_owned()));
    }
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if let Some(port) = port_out_of_range(&url) {
        return Err(bad(format!("a port must be between 1 and 65535, got {port}")));
    }
    let needs_tls = scheme.starts_with("rediss") && !cfg!(feature = "tls");
    let no_tls = || bad(format!("{scheme}:// needs this program built with the feature tls"));
    let password = std::env::var("REDISCLI_AUTH").ok();
    if scheme.ends_with("+cluster") || scheme.ends_with("+sentinel") {
        return match needs_tls {
            true => Err(no_tls()),
            false => Ok(Address::Several(password.map_or(url.clone(), |it| with_password(&url, &it)))),
        };
    }
    // The parser's message may repeat the URL, so only the category of the error is reported.
    let info = url.as_str().into_connection_info().map_err(|e| match needs_tls {
        true => no_tls(),
        false => bad(format!("{} (as in redis://host:6379/0)", e.category())),
    })?;
    let settings = info.redis_settings();
    Ok(Address::Server(Box::new(match password {
        Some(password) if settings.password().is_none() => {
            let settings = settings.clone().set_password(password);
            info.set_redis_settings(settings)
        }
        _ => info,
    })))
}

/// Returns a port that is out of range, if there is one. Text that is not a number is left to the parsers.
fn port_out_of_range(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    let hosts = hosts.split(['/', '?', '#']).next()?;
    let ports = hosts.split(',').filter_map(|host| host.rsplit_once(':').map(|(_, port)| port));
    let is_number = |port: &&str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    ports.filter(is_number).find(|port| !matches!(port.parse::<u16>(), Ok(1..)))
}

/// Returns a URL of several hosts with this password, unless it already has one.
fn with_password(url: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (user, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    if user.contains(':') {
        return url.to_owned();
    }
    let password: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("{scheme}://{user}:{password}@{hosts}")
}

/// Returns the first line of a file that contains a URL.
fn first_line(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let bad = |why: String| Failure::new(code::CONFIG, format!("{shown}: {why}"));
    let open = File::open(file).map_err(|e| bad(e.to_string()))?;
    let mode = open.metadata().map_err(|e| bad(e.to_string()))?.mode();
    if mode & 0o077 != 0 {
        return Err(bad(format!("others may read it (mode {:03o}): chmod 600 {shown}", mode & 0o777)));
    }
    let mut line = String::new();
    BufReader::new(open).read_line(&mut line).map_err(|e| bad(e.to_string()))?;
    match line.trim() {
        "" => Err(bad("its first line is empty".to_owned())),
        url => Ok(url.to_owned()),
    }
}

/// Opens a connection of our own, for requests that are not about locks.
pub fn to(info: ConnectionInfo) -> Result<redis::Connection, Failure> {
    let connection = redis::Client::open(info)?.get_connection_with_timeout(LIMIT)?;
    connection.set_read_timeout(Some(LIMIT))?;
    connection.set_write_timeout(Some(LIMIT))?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_cannot_be_is_found() {
        for (url, port) in [
            ("redis://host:65535/", None),
            ("redis://user:99999@host/", None),
            ("redis+unix:///tmp/a:99999", None),
            ("redis://[::1]/", None),
            ("redis://[::1]:65536/3", Some("65536")),
            ("redis+cluster://:p@a:1,b:0", Some("0")),
            ("redis+sentinel://a:1,b:123456789012/m:3?x=y", Some("123456789012")),
        ] {
            assert_eq!(port_out_of_range(url), port, "{url}");
        }
    }

    #[test]
    fn a_password_goes_into_urls_of_several_hosts() {
        for (url, with) in [
            ("redis+cluster://a:1,b", "redis+cluster://:%70%40@a:1,b"),
            ("redis+sentinel://app@a,b/m", "redis+sentinel://app:%70%40@a,b/m"),
            ("redis+sentinel://app:own@a,b/m", "redis+sentinel://app:own@a,b/m"),
        ] {
            assert_eq!(with_password(url, "p@"), with);
        }
    }
}
