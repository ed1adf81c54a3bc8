//! The only file that spells a key or a channel.

use std::fmt::Write;

use crate::error::{Error, ErrorKind};

/// The longest name of a lock, in bytes.
pub(crate) const LONGEST: usize = 1024;

/// How many keys a lock has.
pub(crate) const KEYS: usize = 6;

/// What stands behind the state's key in the others: state, queue, places, fence, gone, conditions, the
/// order of `KEYS` in every script.
const SUFFIXES: [&str; KEYS] = ["", ":queue", ":places", ":fence", ":gone", ":conditions"];

/// The keys of one lock, all with the lock's name as their hash tag, so that they share a slot.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// What all of them begin with. Of many locks in use only this is kept.
    state: Box<str>,
}

impl Names {
    pub(crate) fn new(namespace: &str, name: &str) -> Result<Self, Error> {
        check(name)?;
        Ok(Names { state: format!("{namespace}:{{{}}}", escape(name)).into() })
    }

    /// The keys, each in two parts.
    pub(crate) fn keys(&self) -> [[&str; 2]; KEYS] {
        SUFFIXES.map(|suffix| [&*self.state, suffix])
    }
}

/// Whether a lock can have this name.
pub(crate) fn check(name: &str) -> Result<(), Error> {
    let short = || name.chars().take(40).collect::<String>();
    measure("lock", name).map_err(|why| Error::new(ErrorKind::Config, &short()).because(why))
}

fn measure(what: &str, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("a {what}'s name must not be empty"));
    }
    if name.len() > LONGEST {
        return Err(format!("a {what}'s name has at most {LONGEST} bytes, this one has {}", name.len()));
    }
    Ok(())
}

/// A condition's name as it stands in the members of `:conditions`, where a `|` ends it. Says what is
/// wrong with it, if anything.
pub(crate) fn condition(name: &str) -> Result<String, String> {
    measure("condition", name)?;
    Ok(name.replace('%', "%25").replace('|', "%7C"))
}

/// Braces are what makes a hash tag: escaped, the whole name is one tag, whatever it holds.
fn escape(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '%' | '{' | '}' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{:02X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

/// What the channels of all inboxes of a namespace begin with; a client's uuid follows.
pub(crate) fn inbox_prefix(namespace: &str) -> String {
    format!("{namespace}:inbox:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(key: &str) -> &str {
        let open = key.find('{').unwrap();
        let close = key[open..].find('}').unwrap() + open;
        &key[open + 1..close]
    }

    #[test]
    fn every_key_has_the_whole_name_as_its_tag() {
        for name in
            ["stock:42", "{", "}", "{}", "a{}b", "}x{", "{{x}", "ключ", "\0", "%7B", &"x".repeat(1024)]
        {
            let names = Names::new("rc", name).unwrap();
            let keys = names.keys().map(|parts| parts.concat());
            for key in &keys {
                assert_eq!(tag(key), tag(&keys[0]), "{name:?}");
                assert!(!tag(key).is_empty());
            }
        }
    }

    #[test]
    fn different_names_have_different_keys() {
        let all = ["%7B", "{", "%257B", "a", "A", "}", "%7D", "{}"];
        let keys: std::collections::BTreeSet<_> =
            all.iter().map(|n| Names::new("rc", n).unwrap().state).collect();
        assert_eq!(keys.len(), all.len());
    }

    #[test]
    fn conditions_do_not_begin_one_another() {
        assert_eq!(condition("a|b%|").unwrap(), "a%7Cb%25%7C");
        assert_eq!(condition("a%7Cb").unwrap(), "a%257Cb");
        assert!(condition("").is_err() && condition(&"x".repeat(1025)).is_err());
    }

    #[test]
    fn empty_and_long_names_are_refused() {
        for name in [String::new(), "x".repeat(1025)] {
            assert_eq!(Names::new("rc", &name).unwrap_err().kind(), ErrorKind::Config);
        }
    }
}
