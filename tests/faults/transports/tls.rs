//! TLS, with certificates that are made here.

mod topologies;

use std::fs;
use std::path::Path;
use std::process::Command;

use redis_concurrent_testkit::TlsFiles;
use tempfile::TempDir;

use super::*;

/// Runs the openssl tool, if there is one.
fn openssl(folder: &Path, args: &str) -> bool {
    match Command::new("openssl").current_dir(folder).args(args.split(' ')).output() {
        Ok(made) if made.status.success() => true,
        Ok(made) => panic!("openssl: {}", String::from_utf8_lossy(&made.stderr)),
        Err(error) => {
            eprintln!("SKIPPED, nothing was tested: no openssl tool ({error})");
            false
        }
    }
}

/// An authority, and two certificates by it: `cert` for 127.0.0.1, `client` for a client.
struct Authority(TempDir);

impl Authority {
    fn new() -> Option<Authority> {
        const NEW: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        let folder = tempfile::tempdir().unwrap();
        let made = openssl(folder.path(), &format!("{NEW} -subj /CN=authority -keyout ca.key -out ca.pem"))
            && ["cert", "client"].into_iter().all(|name| {
                let leaf = format!(
                    "{NEW} -subj /CN=127.0.0.1 -CA ca.pem -CAkey ca.key -keyout {name}.key -out {name}.pem \
                     -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
                );
                openssl(folder.path(), &leaf)
            });
        made.then_some(Authority(folder))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn pem(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// What a server needs for TLS.
    fn files(&self) -> TlsFiles {
        let path = |name: &str| self.0.path().join(name);
        TlsFiles { authority: path("ca.pem"), certificate: path("cert.pem"), key: path("cert.key") }
    }

    /// A client that knows the authority, and has a certificate by it.
    fn client(&self, url: &str) -> ClientBuilder {
        self.without_certificate(url).tls_client_certificate(self.pem("client.pem"), self.pem("client.key"))
    }

    /// One that knows the authority, and has no certificate.
    fn without_certificate(&self, url: &str) -> ClientBuilder {
        Client::builder().url(url).tls_root_certificates(self.pem("ca.pem"))
    }

    /// A server with its certificate, and the URL of its TLS port.
    fn server(&self, asks_clients: &str) -> (RedisServer, String) {
        let server = RedisServer::builder().tls(&self.files()).arg("tls-auth-clients", asks_clients);
        let server = server.password("s3cret").start().unwrap();
        let url = format!("rediss://:s3cret@127.0.0.1:{}/", server.tls_port().unwrap());
        (server, url)
    }
}

/// The error of a client that cannot connect, for what is wrong with a certificate.
#[track_caller]
fn is_refused(builder: ClientBuilder) {
    let error = builder.connect().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(format!("{error:#}").to_lowercase().contains("certificate"), "{error:#}");
}

#[test]
fn an_authority_of_ones_own() {
    let Some(authority) = Authority::new() else { return };
    let (server, url) = authority.server("no");
    // Nobody knows its authority: it is refused as it stands, and by another one's.
    let another = Authority::new().unwrap().pem("ca.pem");
    for builder in [Client::builder(), Client::builder().tls_root_certificates(&another)] {
        is_refused(builder.url(&url));
    }
    let client = |url: &str| authority.without_certificate(url).connect().unwrap();
    works(&client(&url), &client(&url));
    works(&client(&format!("{url}3?protocol=resp3")), &client(&format!("{url}3")));
    works(&client(&url), &Client::connect(&server.url()).unwrap());
}

#[test]
fn a_server_that_asks_for_a_certificate() {
    let Some(authority) = Authority::new() else { return };
    let (_server, url) = authority.server("yes");
    let error = authority.without_certificate(&url).connect().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let with = || authority.client(&url).connect().unwrap();
    works(&with(), &with());
    // A program connects by what its client tells it.
    for primary in with().primaries().unwrap() {
        redis::Client::open(primary).unwrap().get_connection().expect("the certificates are in the address");
    }
}

#[test]
fn what_is_no_certificate_or_no_address_for_one_is_told() {
    let Some(authority) = Authority::new() else { return };
    let (pem, key) = (authority.pem("ca.pem"), authority.pem("ca.key"));
    let tls = || Client::builder().url("rediss://127.0.0.1:1/");
    for (builder, why) in [
        (tls().tls_root_certificates("nonsense"), "root certificates"),
        (tls().tls_root_certificates(&key), "root certificates"),
        (tls().tls_client_certificate("nonsense", &key), "the client's certificate"),
        (tls().tls_client_certificate(&pem, "nonsense"), "key"),
        (Client::builder().url("redis://127.0.0.1:1/").tls_root_certificates(&pem), "rediss://"),
    ] {
        let error = builder.connect_later().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains(why), "{why}: {error}");
    }
}

#[test]
fn a_reply_takes_no_longer_than_its_timeout() {
    let Some(authority) = Authority::new() else { return };
    let (server, url) = authority.server("no");
    let port = server.tls_port().unwrap();
    let door = Proxy::start(port).unwrap();
    let url = url.replace(&port.to_string(), &door.port().to_string());
    a_reply_in_pieces_is_not_waited_for(authority.without_certificate(&url), &door);
}
