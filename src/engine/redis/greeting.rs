//! What a connection tells the server about its client, for an operator who lists the connections.

use std::sync::Arc;

/// `CLIENT SETNAME` with the client's name. It is written in front of a connection's first request, so it
/// costs no round trip. The reply is ignored: the server may not have the command, or the user may not be
/// allowed to use it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting(Arc<[u8]>);

impl Greeting {
    /// Empty if there is no name. Redis accepts only ASCII without spaces in a name: `_` stands for the rest.
    pub(crate) fn of(client_name: &str) -> Greeting {
        if client_name.is_empty() {
            return Greeting::default();
        }
        let name: String = client_name.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
        Greeting(redis::cmd("CLIENT").arg("SETNAME").arg(name).get_packed_command().into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the greeting with these requests behind it.
    pub(crate) fn before(&self, requests: &[u8]) -> Vec<u8> {
        [&*self.0, requests].concat()
    }
}
