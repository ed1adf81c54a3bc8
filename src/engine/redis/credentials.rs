//! What a client logs in with, where that may change: its user's provider is asked for each connection; the name by
//! which the server lists it; and what TLS needs.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult};

use crate::clock::Moment;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::refusal::refused;

/// Returns a user and a password, or why there are none.
type Provider = dyn Fn() -> Result<(String, String), String> + Send + Sync;

/// By default those of the address, and no name.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    provider: Option<Arc<Provider>>,
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(crate) client_name: Arc<str>,
    #[cfg(feature = "tls")]
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

impl Credentials {
    pub(crate) fn of<E: Display>(
        provider: impl Fn() -> Result<(String, String), E> + Send + Sync + 'static,
    ) -> Credentials {
        let provider: Arc<Provider> = Arc::new(move || provider().map_err(|e| format!("{e:#}")));
        Credentials { provider: Some(provider), ..Credentials::default() }
    }

    /// The same under a name. Redis accepts only ASCII without spaces in one: `_` stands for the rest.
    pub(crate) fn named(self, name: &str) -> Credentials {
        let client_name: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
        Credentials { client_name: client_name.into(), ..self }
    }

    /// Returns how to log in there now. Blocks for as long as the provider does, and fails if it took longer than
    /// `limit`: that was the time for the whole connection.
    pub(crate) fn given_to(&self, info: &ConnectionInfo, limit: Duration) -> RedisResult<ConnectionInfo> {
        let Some(provider) = &self.provider else { return Ok(info.clone()) };
        let began = Moment::now();
        let given = catch_unwind(AssertUnwindSafe(|| provider()))
            .unwrap_or_else(|_| Err("it panicked, with the message on standard error".to_owned()));
        let took = Moment::now().since(began);
        let given = given.and_then(|given| match took < limit {
            true => Ok(given),
            false => Err(format!("it took {took:.1?}, and a connection may take {limit:.1?}")),
        });
        let (user, password) =
            given.map_err(|why| (ErrorKind::Client, "the credentials provider failed", why))?;
        let settings = info.redis_settings().clone().set_username(user).set_password(password);
        Ok(info.clone().set_redis_settings(settings))
    }

    /// Returns the error of a login that was refused. Unless it may pass, it is about this client's identity; but
    /// the provider may say something else the next time.
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(crate) fn refused(&self, e: RedisError) -> RedisError {
        if matches!(refused(e.clone()), Failure::Later(_)) {
            return e;
        }
        let (kind, what) = match self.provider {
            None => (ErrorKind::AuthenticationFailed, "authentication failed"),
            Some(_) => (ErrorKind::Client, "refused what the credentials provider said"),
        };
        (kind, what, e.to_string()).into()
    }
}

shows!(Credentials as "Credentials", |it| "given": it.provider.is_some());
