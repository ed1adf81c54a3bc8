//! TLS, with certificates that are made here.

use std::fs;
use std::path::Path;
use std::process::Command;

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
        const NEW: &str = "req -x509 -newkey rsa:2048 -nodes -days 2";
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

    /// A server with its certificate, and the URL of its TLS port.
    fn server(&self, asks_clients: &str) -> (RedisServer, String) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = RedisServer::builder()
            .arg("tls-port", &port.to_string())
            .arg("tls-cert-file", &self.path("cert.pem"))
            .arg("tls-key-file", &self.path("cert.key"))
            .arg("tls-ca-cert-file", &self.path("ca.pem"))
            .arg("tls-auth-clients", asks_clients)
            .password("s3cret")
            .start()
            .unwrap();
        (server, format!("rediss://:s3cret@127.0.0.1:{port}/"))
    }
}

#[test]
fn an_authority_of_ones_own() {
    let Some(authority) = Authority::new() else { return };
    let (server, url) = authority.server("no");
    // Nobody knows its authority: it is refused as it stands, and by another one's.
    let stranger = Authority::new().unwrap().pem("ca.pem");
    for builder in [Client::builder(), Client::builder().tls_root_certificates(&stranger)] {
        let error = builder.url(&url).connect().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(format!("{error:#}").to_lowercase().contains("certificate"), "{error:#}");
    }
    let root = authority.pem("ca.pem");
    let client = |url: &str| Client::builder().url(url).tls_root_certificates(&root).connect().unwrap();
    works(&client(&url), &client(&url));
    works(&client(&format!("{url}3?protocol=resp3")), &client(&format!("{url}3")));
    works(&client(&url), &Client::connect(&server.url()).unwrap());
    // As a client of the redis crate.
    let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(root.clone()) };
    let theirs = redis::Client::build_with_tls(url.as_str(), certificates).unwrap();
    works(&client(&url), &Client::builder().redis_client(theirs).connect().unwrap());
}

#[test]
fn a_server_that_asks_for_a_certificate() {
    let Some(authority) = Authority::new() else { return };
    let (_server, url) = authority.server("yes");
    let without = || Client::builder().url(&url).tls_root_certificates(authority.pem("ca.pem"));
    let error = without().connect().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let with = || without().tls_client_certificate(authority.pem("client.pem"), authority.pem("client.key"));
    works(&with().connect().unwrap(), &with().connect().unwrap());
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
        assert!(error.is_invalid_input() && error.to_string().contains(why), "{why}: {error}");
    }
}
