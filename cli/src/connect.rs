//! The servers: from the options, the environment, or a file that nobody else may read.

use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis_concurrent::redis::{self, ConnectionInfo, IntoConnectionInfo};
use redis_concurrent::{Client, ClientBuilder};

use crate::args::Global;
use crate::exit::{Failure, code};

/// The timeout for opening a connection of our own, and for each of its replies.
const LIMIT: Duration = Duration::from_secs(5);

/// The longest first line of a file with a URL, in bytes: hundreds of servers.
const LONGEST_URL: u64 = 16 * 1024;

const NO_TLS: &str = "needs this program built with the feature tls";

/// Where the locks are, and what their keys begin with.
pub struct Servers {
    /// Includes the password.
    url: String,
    /// Read anew for the passwords in it.
    file: Option<UrlFile>,
    namespace: String,
    certificates: Certificates,
}

/// A regular file whose first line is the URL.
#[derive(Clone)]
struct UrlFile {
    path: PathBuf,
    /// Whether all users may read it.
    public: bool,
    /// The URL at the start: the file may be deleted then.
    first: String,
}

/// PEM texts for `rediss://`.
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there are none without TLS"))]
struct Certificates {
    roots: Option<Vec<u8>>,
    /// The program's own certificate, and its key.
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Servers {
    /// Returns the servers of the options. A pipe is read only once, here.
    pub fn of(global: &Global) -> Result<Servers, Failure> {
        let url = match (&global.url_file, &global.url) {
            (Some(file), _) => first_line(file, global.public_url_file)?,
            (None, Some(url)) => url.clone(),
            (None, None) => "redis://127.0.0.1/".to_owned(),
        };
        check(&url)?;
        let url = with_password_of_environment(url);
        let file = global.url_file.clone().filter(|path| path.is_file());
        Ok(Servers {
            file: file.map(|path| UrlFile { path, public: global.public_url_file, first: url.clone() }),
            certificates: Certificates::of(global, is_by_tls(&url))?,
            url,
            namespace: global.namespace().to_owned(),
        })
    }

    /// Returns a builder for a client of the library, without further settings.
    pub fn builder(&self) -> ClientBuilder {
        let mut builder = Client::builder().namespace(&self.namespace).url(&self.url);
        let [at_servers, at_sentinels] =
            logins(&self.url).map(|login| self.file.clone().filter(|_| login.is_some()));
        if let Some(file) = at_servers {
            builder = builder.credentials(move || file.login(0));
        }
        if let Some(file) = at_sentinels {
            builder = builder.sentinel_credentials(move || file.login(1));
        }
        self.certificates.given_to(builder)
    }

    pub fn connect(&self) -> Result<Client, Failure> {
        self.connected(self.builder())
    }

    /// Connects with such a builder. If a single server cannot be reached, the failure names its address.
    pub fn connected(&self, builder: ClientBuilder) -> Result<Client, Failure> {
        builder.connect().map_err(|error| {
            let failure = Failure::from(error);
            let only = if self.is_of_several() { Vec::new() } else { self.primaries().unwrap_or_default() };
            only.iter().fold(failure, |failure, info| failure.at(info.addr()))
        })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the URL is that of a cluster.
    pub fn is_cluster(&self) -> bool {
        scheme(&self.url).ends_with("+cluster")
    }

    /// Whether the URL is that of sentinels, or of a cluster.
    fn is_of_several(&self) -> bool {
        self.is_cluster() || scheme(&self.url).ends_with("+sentinel")
    }

    /// Returns how to connect to the servers that have locks. A server that the URL names itself is not asked
    /// whether it can have any.
    pub fn primaries(&self) -> Result<Vec<ConnectionInfo>, Failure> {
        let client = if self.is_of_several() { self.connect()? } else { self.builder().connect_later()? };
        Ok(client.primaries()?)
    }
}

impl UrlFile {
    /// Returns this one of the [`logins`] that are there now.
    fn login(&self, which: usize) -> Result<(String, String), Failure> {
        let url = match self.path.exists() {
            true => with_password_of_environment(first_line(&self.path, self.public)?),
            false => self.first.clone(),
        };
        let login = logins(&url).into_iter().nth(which).flatten();
        login.ok_or_else(|| bad(format!("{} has no password any more", self.path.display())))
    }
}

impl Certificates {
    /// Returns those of the options. `$SSL_CERT_FILE` is also there for other programs, so it is for TLS only.
    fn of(global: &Global, is_by_tls: bool) -> Result<Certificates, Failure> {
        let files = [&global.cacert, &global.cert, &global.key];
        if cfg!(not(feature = "tls")) && files.iter().any(|it| it.is_some()) {
            return Err(bad(format!("certificates {NO_TLS}")));
        }
        let of_environment = std::env::var_os("SSL_CERT_FILE").filter(|it| is_by_tls && !it.is_empty());
        let roots = global.cacert.clone().or(of_environment.map(PathBuf::from));
        let read = |file: &PathBuf| {
            std::fs::read(file).map_err(|e| Failure::new(code::CONFIG, format!("{}: {e}", file.display())))
        };
        let own = global.cert.as_ref().zip(global.key.as_ref());
        Ok(Certificates {
            roots: roots.as_ref().map(read).transpose()?,
            own: own.map(|(cert, key)| Ok::<_, Failure>((read(cert)?, read(key)?))).transpose()?,
        })
    }

    #[cfg(feature = "tls")]
    fn given_to(&self, mut builder: ClientBuilder) -> ClientBuilder {
        if let Some(pem) = &self.roots {
            builder = builder.tls_root_certificates(pem);
        }
        match &self.own {
            Some((cert, key)) => builder.tls_client_certificate(cert, key),
            None => builder,
        }
    }

    #[cfg(not(feature = "tls"))]
    fn given_to(&self, builder: ClientBuilder) -> ClientBuilder {
        builder
    }
}

fn scheme(url: &str) -> &str {
    url.split_once("://").map_or("", |(scheme, _)| scheme)
}

fn is_by_tls(url: &str) -> bool {
    ["rediss", "valkeys"].iter().any(|it| scheme(url).starts_with(it))
}

fn bad(why: impl Display) -> Failure {
    Failure::new(code::CONFIG, format!("the URL of the server: {why}"))
}

/// Checks what the library's own errors say less about.
fn check(url: &str) -> Result<(), Failure> {
    if url.is_empty() {
        return Err(bad("it is empty"));
    }
    if let Some(port) = port_out_of_range(url) {
        return Err(bad(format!("a port must be between 1 and 65535, got {port}")));
    }
    match is_by_tls(url) && cfg!(not(feature = "tls")) {
        true => Err(bad(format!("{}:// {NO_TLS}", scheme(url)))),
        false => Ok(()),
    }
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

/// Returns the users and the passwords at the servers and at the sentinels, where there is a password.
fn logins(url: &str) -> [Option<(String, String)>; 2] {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let of_sentinels = |name: &str| {
        let mut pairs = rest.split(['?', '&', '#']).skip(1).filter_map(|pair| pair.split_once('='));
        pairs.find(|(it, _)| *it == name).map_or("", |(_, value)| value)
    };
    let at_servers = match rest.rsplit_once('@') {
        _ if scheme.ends_with("unix") => url.to_owned(),
        login => format!("redis://{}@host/", login.map_or("", |(login, _)| login)),
    };
    let at_sentinels =
        format!("redis://{}:{}@host/", of_sentinels("sentinel_user"), of_sentinels("sentinel_password"));
    [at_servers, at_sentinels].map(|url| {
        let info = url.into_connection_info().ok()?;
        let (user, password) = (info.redis_settings().username(), info.redis_settings().password()?);
        Some((user.unwrap_or("default").to_owned(), password.to_owned()))
    })
}

fn with_password_of_environment(url: String) -> String {
    // An empty one is none, as it is to redis-cli.
    let password = std::env::var_os("REDISCLI_AUTH").filter(|it| !it.is_empty());
    password.map_or(url.clone(), |it| with_password(&url, it.as_bytes()))
}

/// Returns the URL with this password, unless it already has one.
fn with_password(url: &str, password: &[u8]) -> String {
    let password: String = password.iter().map(|byte| format!("%{byte:02X}")).collect();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // A socket's is in the query.
    if scheme.ends_with("unix") {
        let has_one = rest.split(['?', '&']).skip(1).any(|pair| pair.starts_with("pass="));
        let joint = if rest.contains('?') { '&' } else { '?' };
        return if has_one { url.to_owned() } else { format!("{url}{joint}pass={password}") };
    }
    let (user, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    if user.contains(':') {
        return url.to_owned();
    }
    format!("{scheme}://{user}:{password}@{hosts}")
}

/// Returns the first line of a file that contains a URL. Others may read it only if `public`.
fn first_line(file: &Path, public: bool) -> Result<String, Failure> {
    let shown = file.display();
    let bad = |why: String| Failure::new(code::CONFIG, format!("{shown}: {why}"));
    let open = File::open(file).map_err(|e| bad(e.to_string()))?;
    let it = open.metadata().map_err(|e| bad(e.to_string()))?;
    let mode = it.mode() & 0o777;
    let others = if public {
        0o033
    } else if is_for_a_group_of_ours(&it) {
        0o037
    } else {
        0o077
    };
    if mode & others != 0 {
        let how = if mode & 0o033 == 0 { ", or --public-url-file" } else { "" };
        return Err(bad(format!("others may access it (mode {mode:03o}): chmod 600 {shown}{how}")));
    }
    let mut line = String::new();
    BufReader::new(open.take(LONGEST_URL + 1)).read_line(&mut line).map_err(|e| bad(e.to_string()))?;
    match line.trim() {
        _ if line.len() as u64 > LONGEST_URL => {
            Err(bad(format!("its first line has more than {LONGEST_URL} bytes")))
        }
        "" => Err(bad("its first line is empty".to_owned())),
        url => Ok(url.to_owned()),
    }
}

/// Whether its group is meant to read it, as a secret that is mounted into a container: root's, or of a group
/// that this process is in.
fn is_for_a_group_of_ours(it: &Metadata) -> bool {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let ours = groups.into_iter().chain([rustix::process::getegid()]);
    it.uid() == 0 || ours.map(|gid| gid.as_raw()).any(|gid| gid == it.gid())
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
    fn logins_are_found_in_urls() {
        for (url, at_servers, at_sentinels) in [
            ("redis://a/3", None, None),
            ("redis://app@a/3", None, None),
            ("rediss://:p%40@a/3?protocol=resp3", Some(("default", "p@")), None),
            ("redis+unix:///s?pass=p%40&db=1&user=app", Some(("app", "p@")), None),
            ("unix:///s", None, None),
            ("redis+cluster://app:p@a:1,b", Some(("app", "p")), None),
            ("redis+sentinel://app:p@a,b/m/3", Some(("app", "p")), None),
            ("redis+sentinel://a/m?sentinel_password=s%2F", None, Some(("default", "s/"))),
            (
                "redis+sentinel://:p@a/m?sentinel_user=u&sentinel_password=s",
                Some(("default", "p")),
                Some(("u", "s")),
            ),
        ] {
            let owned = |(user, password): (&str, &str)| (user.to_owned(), password.to_owned());
            assert_eq!(logins(url), [at_servers.map(owned), at_sentinels.map(owned)], "{url}");
        }
    }

    #[test]
    fn a_password_goes_into_urls() {
        for (url, with) in [
            ("redis://a/3", "redis://:%70%40@a/3"),
            ("redis://:own@a/3", "redis://:own@a/3"),
            ("redis+unix:///s", "redis+unix:///s?pass=%70%40"),
            ("unix:///s?db=1", "unix:///s?db=1&pass=%70%40"),
            ("unix:///s?db=1&pass=own", "unix:///s?db=1&pass=own"),
            ("redis+cluster://a:1,b", "redis+cluster://:%70%40@a:1,b"),
            ("redis+sentinel://app@a,b/m", "redis+sentinel://app:%70%40@a,b/m"),
            ("redis+sentinel://app:own@a,b/m", "redis+sentinel://app:own@a,b/m"),
        ] {
            assert_eq!(with_password(url, b"p@"), with);
        }
    }
}
