//! The server: from the options, the environment, or a file that nobody else may read.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use redis_concurrent::redis::{self, ConnectionInfo, IntoConnectionInfo};
use redis_concurrent::{Client, ClientBuilder};

use crate::args::Global;
use crate::exit::{Failure, code};

/// How long opening a connection of our own, and each of its replies, may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The address, with the password.
pub fn address(global: &Global) -> Result<ConnectionInfo, Failure> {
    let url = match (&global.url_file, &global.url) {
        (Some(file), _) => first_line(file)?,
        (None, Some(url)) => url.clone(),
        (None, None) => "redis://127.0.0.1/".to_owned(),
    };
    let bad = |why: String| Failure::new(code::CONFIG, format!("the URL of the server: {why}"));
    // What a failover forgets, `run` would not notice.
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if scheme.ends_with("+cluster") || scheme.ends_with("+sentinel") {
        return Err(bad(format!("{scheme}:// is not offered here: name one server, the primary")));
    }
    // What the parsers say of a URL may repeat it: only its form is told.
    let info = url.as_str().into_connection_info().map_err(|e| {
        bad(match url.starts_with("rediss://") && !cfg!(feature = "tls") {
            true => "rediss:// needs this program built with the feature tls".to_owned(),
            false => format!("{} (as in redis://user:password@host:6379/0)", e.category()),
        })
    })?;
    let settings = info.redis_settings();
    match std::env::var("REDISCLI_AUTH") {
        Ok(password) if settings.password().is_none() => {
            let settings = settings.clone().set_password(password);
            Ok(info.set_redis_settings(settings))
        }
        _ => Ok(info),
    }
}

/// The first line of a file that holds a URL.
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

/// A client of the library, before its own settings.
pub fn builder(global: &Global) -> Result<ClientBuilder, Failure> {
    Ok(Client::builder().connection_info(address(global)?).namespace(&global.namespace))
}

/// A connection of our own, for what is no lock.
pub fn plain(global: &Global) -> Result<redis::Connection, Failure> {
    let client = redis::Client::open(address(global)?)?;
    let connection = client.get_connection_with_timeout(LIMIT)?;
    connection.set_read_timeout(Some(LIMIT))?;
    connection.set_write_timeout(Some(LIMIT))?;
    Ok(connection)
}
