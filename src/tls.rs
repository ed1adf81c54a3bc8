//! TLS certificates that a client's user supplies.

use crate::error::Error;
use crate::settings::bad;

/// The certificates that a client was given.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// PEM: the authorities that may have signed a server's certificate.
    pub(crate) roots: Option<Vec<u8>>,
    /// PEM: this client's certificate and its key.
    pub(crate) own: Option<redis::ClientTlsConfig>,
}

impl Certificates {
    /// Returns the same client with these certificates, if there are any.
    pub(crate) fn given_to(&self, client: redis::Client) -> Result<redis::Client, Error> {
        let Certificates { roots, own } = self.clone();
        if roots.is_none() && own.is_none() {
            return Ok(client);
        }
        if roots.as_deref().is_some_and(|pem| !is_certificate(pem)) {
            return Err(bad("no certificate in the PEM text of the root certificates"));
        }
        if own.as_ref().is_some_and(|own| !is_certificate(&own.client_cert)) {
            return Err(bad("no certificate in the PEM text of the client's certificate"));
        }
        let info = client.get_connection_info().clone();
        let certificates = redis::TlsCertificates { client_tls: own, root_cert: roots };
        redis::Client::build_with_tls(info, certificates)
            .map_err(|e| bad(format!("these certificates cannot be used: {e}")))
    }

    /// The same for several clients; those without TLS need no certificates.
    pub(crate) fn given_to_all(&self, clients: Vec<redis::Client>) -> Result<Vec<redis::Client>, Error> {
        let by_tls = |client: &redis::Client| {
            matches!(client.get_connection_info().addr(), redis::ConnectionAddr::TcpTls { .. })
        };
        let given = |client| if by_tls(&client) { self.given_to(client) } else { Ok(client) };
        clients.into_iter().map(given).collect()
    }
}

fn is_certificate(pem: &[u8]) -> bool {
    const BEGINS: &[u8] = b"-----BEGIN CERTIFICATE-----";
    pem.windows(BEGINS.len()).any(|text| text == BEGINS)
}
