//! TLS, in a build with the feature `tls`; in one without it, the error that says so.

use crate::fixture::done;

#[cfg(not(feature = "tls"))]
#[test]
#[ignore = "only where no other package of the build enables TLS: see .ci/run"]
fn the_library_names_the_feature() {
    let error = redis_concurrent::Client::connect("rediss://127.0.0.1:1/").unwrap_err();
    assert!(error.kind() == redis_concurrent::ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("needs the feature `tls` of redis-concurrent"), "{error}");
}

#[cfg(not(feature = "tls"))]
#[test]
fn the_program_names_the_feature() {
    for url in ["rediss://127.0.0.1:1/", "rediss+cluster://:hush@127.0.0.1:1/"] {
        let it = done(url, &["ls"]).ends(78).says("built with the feature tls");
        assert!(!format!("{it:?}").contains("hush"));
    }
    done("redis://127.0.0.1:1/", &["ls", "--cacert", "x"]).ends(78).says("built with the feature tls");
}

#[cfg(feature = "tls")]
#[test]
fn certificates_come_from_options_or_the_environment() {
    use crate::fixture::{Done, program};
    use redis_concurrent_testkit::{RedisServer, TlsFiles};

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let openssl = |args: &str| {
        let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        let mut command = std::process::Command::new("openssl");
        command.current_dir(folder.path()).args(new.split(' ')).args(args.split(' '));
        assert!(command.output().expect("the openssl tool").status.success());
    };
    openssl("-subj /CN=authority -keyout ca.key -out ca.pem");
    openssl(
        "-subj /CN=127.0.0.1 -CA ca.pem -CAkey ca.key -keyout cert.key -out cert.pem \
         -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE",
    );
    let files = TlsFiles { authority: path("ca.pem"), certificate: path("cert.pem"), key: path("cert.key") };
    let server = RedisServer::builder().tls(&files).arg("tls-auth-clients", "yes").start().unwrap();
    let url = format!("rediss://127.0.0.1:{}/", server.tls_port().unwrap());
    let text = |name: &str| path(name).display().to_string();
    let (ca, cert, key) = (text("ca.pem"), text("cert.pem"), text("cert.key"));
    let own = ["--cert", &cert, "--key", &key];
    // `run` and `doctor` have connections of their own, too.
    let terms = ["run", "--lease", "1s", "x", "true"];
    for (named, code) in [(&["--cacert", &ca][..], 0), (&[], 69)] {
        done(&url, &[named, &own, &terms].concat()).ends(code);
    }
    done(&url, &[&["--cacert", &ca], &terms[..]].concat()).ends(69);
    let with = |value: &str, args: &[&str]| {
        let mut command = program(&url, args);
        Done::of(command.env("SSL_CERT_FILE", value).output().unwrap())
    };
    with(&ca, &[&own, &terms[..]].concat()).ends(0);
    assert!(!with(&ca, &[&own[..], &["doctor"]].concat()).out.contains("fail"));
    with("/no/such", &["ls"]).ends(78).says("/no/such");
    // It is not for a connection without TLS.
    let mut plain = program(&server.url(), &["ls"]);
    Done::of(plain.env("SSL_CERT_FILE", "/no/such").output().unwrap()).ends(0);
    done(&url, &["ls", "--cert", &cert]).ends(64);
}
