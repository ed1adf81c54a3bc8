//! The only file that spells out a key or a channel, or parses an owner id.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::{Builder, Uuid};

use crate::error::{Error, ErrorKind};
use crate::sync::Random;

/// The longest name of a lock, in bytes.
pub(crate) const LONGEST: usize = 1024;

/// How many keys a lock has.
pub(crate) const KEYS: usize = SUFFIXES.len();

/// The suffixes of the keys after the state's own: queue, queue positions, fence, tombstones, conditions. The
/// order is that of `KEYS` in every script.
pub(crate) const SUFFIXES: [&str; 6] = ["", ":queue", ":positions", ":fence", ":tombstones", ":conditions"];

/// What separates the prefix of a channel from a client's uuid.
const INBOX: &str = ":inbox:";

/// The suffix of the key of a fenced resource.
const FENCED: &str = ":fenced";

/// The name of one lock and its keys, all in one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Keys whose hash tag is the lock's name, unescaped: the prefix of all of them, which is the state's key.
    /// For most locks this is all that is stored, as there may be many of them.
    Named(Box<str>),
    /// All others. Boxed, so that they do not make the usual case larger.
    Explicit(Box<ExplicitKeys>),
}

/// Keys from which the lock's name cannot be read in the usual way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExplicitKeys {
    /// The name, if it had to be escaped; `None` at a user-chosen key, which is itself the name.
    name: Option<Box<str>>,
    state: Box<str>,
    /// The prefix of the other keys.
    others: Box<str>,
}

impl Names {
    /// The keys of the lock `name`.
    pub(crate) fn new(namespace: &str, name: &str) -> Result<Self, Error> {
        Names::of("lock", namespace, name)
    }

    /// The same for something other than a lock, which errors call `what`.
    pub(crate) fn of(what: &str, namespace: &str, name: &str) -> Result<Self, Error> {
        check(what, name)?;
        let state: Box<str> = state(namespace, name).into();
        let named = Names::Named(state.clone());
        if named.name() == name {
            return Ok(named);
        }
        Ok(Names::Explicit(Box::new(ExplicitKeys { name: Some(name.into()), others: state.clone(), state })))
    }

    /// The keys of the lock whose state is exactly at `key`. No two such locks share any other key: after
    /// `}:at` comes the whole key if it has a hash tag, and otherwise the key is the tag.
    pub(crate) fn at_key(namespace: &str, key: &str) -> Result<Self, Error> {
        let bad = |why: String| Error::new(ErrorKind::InvalidInput, &short(key)).because(why);
        measure("lock's key", key).map_err(bad)?;
        let ours = key.strip_prefix(namespace).is_some_and(|rest| rest.starts_with(":{"));
        if ours && SUFFIXES[1..].iter().chain([&FENCED]).any(|suffix| key.ends_with(suffix)) {
            return Err(bad(format!("a key like this one is a lock's own, in the namespace {namespace:?}")));
        }
        let others = match tag(key) {
            Some(tag) => format!("{namespace}:{{{tag}}}:at:{key}"),
            None if key.contains('}') => {
                let why = "in a cluster nothing could stand beside this key: it has a '}', and no hash tag";
                return Err(bad(why.to_owned()));
            }
            None => format!("{namespace}:{{{key}}}:at"),
        };
        Ok(Names::Explicit(Box::new(ExplicitKeys { name: None, state: key.into(), others: others.into() })))
    }

    /// Whether the state is at a user-chosen key.
    pub(crate) fn is_at_key(&self) -> bool {
        matches!(self, Names::Explicit(keys) if keys.name.is_none())
    }

    /// The lock's name; at a user-chosen key, that key.
    pub(crate) fn name(&self) -> &str {
        match self {
            // A namespace contains no brace.
            Names::Named(state) => {
                state.split_once('{').and_then(|(_, tag)| tag.strip_suffix('}')).unwrap_or(state)
            }
            Names::Explicit(keys) => keys.name.as_ref().unwrap_or(&keys.state),
        }
    }

    /// The key of the lock's state, which has the hash tag of all its keys.
    pub(crate) fn key(&self) -> &str {
        match self {
            Names::Named(state) => state,
            Names::Explicit(keys) => &keys.state,
        }
    }

    /// The keys, each in two parts.
    pub(crate) fn keys(&self) -> [[&str; 2]; KEYS] {
        let mut all = SUFFIXES.map(|suffix| [self.stem(), suffix]);
        all[0] = [self.key(), SUFFIXES[0]];
        all
    }

    /// The prefix of its keys other than the state's, and of its channels in a cluster. No two locks have the
    /// same.
    pub(crate) fn stem(&self) -> &str {
        match self {
            Names::Named(state) => state,
            Names::Explicit(keys) => &keys.others,
        }
    }

    /// The key of the fenced resource of this name, in two parts: next to the keys of the lock of the same
    /// name, which is likely to be the one that guards it.
    pub(crate) fn fenced(&self) -> [&str; 2] {
        [self.keys()[0][0], FENCED]
    }
}

/// The key of the state of the lock `name`.
fn state(namespace: &str, name: &str) -> String {
    // Braces would delimit a hash tag: the whole name is one tag, whatever it contains.
    format!("{namespace}:{{{}}}", encoded(name, |c| !"%{}".contains(c)))
}

/// The name of the lock whose state is at `key`, if it has one.
pub(crate) fn of_state(namespace: &str, key: &str) -> Option<String> {
    let escaped = key.strip_prefix(namespace)?.strip_prefix(":{")?.strip_suffix('}')?;
    let name = unescape(escaped)?;
    let is_one = check("lock", &name).is_ok() && state(namespace, &name) == key;
    is_one.then_some(name)
}

/// The part of a key that Redis Cluster hashes for its slot: what is between the first `{` and the next `}`,
/// or the whole key if that is empty or there is none.
pub(crate) fn hashed(key: &[u8]) -> &[u8] {
    let at = |bytes: &[u8], brace| bytes.iter().position(|byte| *byte == brace);
    let Some(inside) = at(key, b'{').map(|open| &key[open + 1..]) else { return key };
    match at(inside, b'}') {
        None | Some(0) => key,
        Some(close) => &inside[..close],
    }
}

/// The hash tag of a key: the part that is hashed, if that is not the whole key.
fn tag(key: &str) -> Option<&str> {
    let hashed = hashed(key.as_bytes());
    std::str::from_utf8(hashed).ok().filter(|tag| tag.len() < key.len())
}

/// Whether a `what` can have this name.
pub(crate) fn check(what: &str, name: &str) -> Result<(), Error> {
    measure(&format!("{what}'s name"), name)
        .map_err(|why| Error::new(ErrorKind::InvalidInput, &short(name)).because(why))
}

/// The beginning of a name, as errors show it.
fn short(name: &str) -> String {
    name.chars().take(40).collect()
}

fn measure(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("a {what} must not be empty"));
    }
    if text.len() > LONGEST {
        return Err(format!("a {what} must have at most {LONGEST} bytes, got {}", text.len()));
    }
    Ok(())
}

/// Encodes the name of `what` as a field: for the members of `:conditions` and for an inventory's fields and arguments,
/// where a `|` ends it. Returns an error text if the name is invalid.
pub(crate) fn field(what: &str, name: &str) -> Result<String, String> {
    measure(what, name).map(|()| encoded(name, |c| !"%|".contains(c)))
}

/// The keys of the queue and its positions of the lock of this [stem](Names::stem), each in two parts.
pub(crate) fn queue_of(stem: &str) -> [[&str; 2]; 2] {
    [[stem, SUFFIXES[1]], [stem, SUFFIXES[2]]]
}

/// The name, or the user-chosen key, of the lock of this [stem](Names::stem), for people.
pub(crate) fn shown(stem: &str) -> String {
    let key = stem.split_once("}:at:").map(|(_, key)| key.as_bytes());
    String::from_utf8_lossy(key.unwrap_or_else(|| hashed(stem.as_bytes()))).into_owned()
}

/// The prefix of the channels of all inboxes for the lock of this [stem](Names::stem), or for all locks of a namespace;
/// a client's uuid follows.
pub(crate) fn inbox_prefix(stem: &str) -> String {
    format!("{stem}{INBOX}")
}

/// The channel of the client `uuid` for the lock of this [stem](Names::stem), or for all locks of a namespace.
pub(crate) fn channel(stem: &str, uuid: &str) -> String {
    format!("{stem}{INBOX}{uuid}")
}

/// The stem of the lock to which this channel of the client `uuid` belongs.
pub(crate) fn stem_of<'a>(channel: &'a str, uuid: &str) -> Option<&'a str> {
    channel.strip_suffix(uuid)?.strip_suffix(INBOX)
}

/// Returns a uuid that was never drawn before, in any copy of this process either.
pub(crate) fn fresh_uuid(process: &str) -> String {
    let random = Random::new_v4();
    if cfg!(shuttle) { random } else { mixed_uuid(random.into_bytes(), process) }.to_string()
}

/// Returns a uuid that is not made of the system's `random` bytes alone, which a machine that was cloned, or
/// started with the same seed, draws as well.
fn mixed_uuid(random: [u8; 16], process: &str) -> Uuid {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mix = |half: u8| BuildHasherDefault::<DefaultHasher>::default().hash_one((half, process, now, drawn));
    let mixed = u128::from_ne_bytes(random) ^ (u128::from(mix(0)) << 64 | u128::from(mix(1)));
    Builder::from_random_bytes(mixed.to_ne_bytes()).into_uuid()
}

/// Whether this is an owner id of this library: `<client uuid>:<n>`, or `<client uuid>:<n>~`.
pub(crate) fn is_owner(text: &str) -> bool {
    text.split_once(':').is_some_and(|(client, n)| {
        let n = n.strip_suffix('~').unwrap_or(n);
        Uuid::try_parse(client).is_ok_and(|it| it.to_string() == client)
            && n.parse::<u64>().is_ok_and(|it| it.to_string() == n)
    })
}

/// Encodes `text` as one plain word: all bytes but ASCII letters, digits, `-` and `_` become `%XX`.
pub(crate) fn escape(text: &str) -> String {
    encoded(text, |c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// Percent-encodes all but what is `plain`.
fn encoded(text: &str, plain: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if plain(c) {
            out.push(c);
        } else {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")));
        }
    }
    out
}

/// Decodes a percent-encoded `text`; `None` if a `%` is not followed by two hexadecimal digits, or the result is not UTF-8.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
#[path = "../verify/unit/names.rs"]
mod tests;
