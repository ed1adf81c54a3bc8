//! A hold in writing: serialized by the process that has it, for another process to continue.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::slots::crc16;
use crate::engine::state::grant::{Grant, MOST_HAND_OVERS};
use crate::engine::state::lock_state::Terms;
use crate::error::{Error, ErrorKind};
use crate::names::{self, escape, is_owner, unescape};
use crate::settings::check_lease;

/// The format version that this code reads and writes.
const VERSION: &str = "rc1";

/// A hold that no process has at the moment: made by
/// [`OwnedGuard::into_receipt`](crate::OwnedGuard::into_receipt) and adopted by
/// [`Client::adopt`](crate::Client::adopt), usually in another process. It is not renewed in between.
///
/// A receipt is a text on one line, without blanks, to be sent along with the work: [`Display`](fmt::Display)
/// writes it, [`FromStr`] parses it. It contains no secrets, but **any process that has it can take over the
/// hold**: once, it is worth as much as the guard was.
///
/// ```
/// use redis_concurrent::{Client, Receipt};
/// use redis_concurrent::kinds::Reentrant;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let (frontend, worker) = (Client::connect(&url)?, Client::connect(&url)?);
/// let guard = frontend.reentrant_lock("order:7").lock_owned()?;
/// let token = guard.token();
/// let text = guard.into_receipt()?.to_string();
///
/// // in another process, before the lease expires
/// let receipt: Receipt = text.parse()?;
/// let guard = worker.adopt::<Reentrant>(&receipt)?;
/// assert_eq!(guard.token(), token);
/// assert!(worker.adopt::<Reentrant>(&receipt).is_err()); // only once
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    kind: String,
    name: String,
    /// Whether the name is a user-chosen key.
    at_key: bool,
    owner: String,
    hand_overs: u32,
    lease: Duration,
    fixed: bool,
    args: String,
}

impl Receipt {
    pub(crate) fn new(entry: &LockEntry, grant: &Grant) -> Receipt {
        Receipt {
            kind: entry.observed().kind.to_owned(),
            name: entry.name().to_owned(),
            at_key: entry.names.is_at_key(),
            owner: entry.owner_id(grant.owner),
            hand_overs: grant.hand_overs,
            lease: grant.terms.lease,
            fixed: grant.terms.fixed,
            args: grant.terms.args.to_string(),
        }
    }

    /// The kind of the lock: its [`Kind::NAME`](crate::kinds::Kind::NAME).
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_at_key(&self) -> bool {
        self.at_key
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// The grant that the receipt describes, but for its number and its value, which Redis has.
    pub(crate) fn grant(&self) -> Grant {
        let terms = Terms { fixed: self.fixed, ..Terms::new(self.lease, self.args.as_str()) };
        Grant { hand_overs: self.hand_overs, ..Grant::new(0, 0, terms) }
    }
}

/// Version, kind, name, owner, hand-offs, lease in ms, `fixed` or `renewed`, the rule's argument, and the CRC16
/// of all that; separated by dots. Everything but letters, digits, `-` and `_` is escaped. An `@` before the
/// name marks a user-chosen key.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, name, owner, args] = [&self.kind, &self.name, &self.owner, &self.args].map(|t| escape(t));
        let (lease, ends) = (self.lease.as_millis(), if self.fixed { "fixed" } else { "renewed" });
        let at = if self.at_key { "@" } else { "" };
        let text = format!("{VERSION}.{kind}.{at}{name}.{owner}.{}.{lease}.{ends}.{args}", self.hand_overs);
        write!(f, "{text}.{:04x}", crc16(text.as_bytes()))
    }
}

impl FromStr for Receipt {
    type Err = Error;

    /// Parses what `Display` wrote, and nothing else.
    ///
    /// # Errors
    /// `InvalidInput`, with what is wrong with the text.
    fn from_str(text: &str) -> Result<Receipt, Error> {
        let fields: Vec<&str> = text.split('.').collect();
        let receipt = match *fields {
            [VERSION, kind, name, owner, hand_overs, lease, ends, args, _] => Receipt {
                kind: unescape(kind).filter(|it| !it.is_empty()).ok_or_else(|| bad("kind"))?,
                name: unescape(name.strip_prefix('@').unwrap_or(name)).ok_or_else(|| bad("name"))?,
                at_key: name.starts_with('@'),
                owner: unescape(owner).filter(|it| is_owner(it)).ok_or_else(|| bad("owner"))?,
                hand_overs: natural(hand_overs, MOST_HAND_OVERS).ok_or_else(|| bad("hand-offs"))?,
                lease: Duration::from_millis(natural(lease, u64::MAX).ok_or_else(|| bad("lease"))?),
                fixed: match ends {
                    "fixed" => true,
                    "renewed" => false,
                    _ => return Err(bad("kind of lease")),
                },
                args: unescape(args).ok_or_else(|| bad("arguments"))?,
            },
            [VERSION, ..] => return Err(wrong(format!("expected 9 parts, got {}", fields.len()))),
            [version, ..] if is_version(version) => {
                return Err(wrong(format!("unsupported version {version}, expected {VERSION}")));
            }
            _ => return Err(wrong("not a receipt")),
        };
        names::check("lock", &receipt.name)?;
        check_lease("lease", receipt.lease).map_err(wrong)?;
        // Each receipt has exactly one text, with one checksum: one that differs was altered on its way.
        if receipt.to_string() != text {
            return Err(wrong("it was altered"));
        }
        Ok(receipt)
    }
}

fn wrong(why: impl Into<String>) -> Error {
    ErrorKind::InvalidInput.because(format!("invalid receipt: {}", why.into()))
}

fn bad(part: &str) -> Error {
    wrong(format!("invalid {part}"))
}

fn is_version(text: &str) -> bool {
    text.strip_prefix("rc").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn natural<N: FromStr + PartialOrd>(text: &str, most: N) -> Option<N> {
    text.parse().ok().filter(|n| *n <= most)
}

#[cfg(test)]
#[path = "../../verify/unit/lock/receipt.rs"]
mod tests;
