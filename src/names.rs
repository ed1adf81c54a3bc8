//! The only file that spells a key or a channel.

use std::fmt::Write;

use crate::error::{Error, ErrorKind};

/// The longest name of a lock, in bytes.
pub(crate) const LONGEST: usize = 1024;

/// The keys of one lock, all with the lock's name as their hash tag, so that they share a slot.
#[derive(Debug)]
pub(crate) struct Names {
    /// state, queue, places, fence, gone: the order of `KEYS` in every script.
    pub(crate) keys: [String; 5],
}

impl Names {
    pub(crate) fn new(namespace: &str, name: &str) -> Result<Self, Error> {
        check(name)?;
        let state = format!("{namespace}:{{{}}}", escape(name));
        let with = |suffix: &str| format!("{state}:{suffix}");
        let keys = [with("queue"), with("places"), with("fence"), with("gone")];
        let [queue, places, fence, gone] = keys;
        Ok(Names { keys: [state, queue, places, fence, gone] })
    }
}

fn check(name: &str) -> Result<(), Error> {
    let why = if name.is_empty() {
        "a lock's name must not be empty".to_owned()
    } else if name.len() > LONGEST {
        format!("a lock's name has at most {LONGEST} bytes, this one has {}", name.len())
    } else {
        return Ok(());
    };
    let short: String = name.chars().take(40).collect();
    Err(Error::new(ErrorKind::Config, &short).because(why))
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
            for key in &names.keys {
                assert_eq!(tag(key), tag(&names.keys[0]), "{name:?}");
                assert!(!tag(key).is_empty());
            }
        }
    }

    #[test]
    fn different_names_have_different_keys() {
        let all = ["%7B", "{", "%257B", "a", "A", "}", "%7D", "{}"];
        let keys: std::collections::BTreeSet<_> =
            all.iter().map(|n| Names::new("rc", n).unwrap().keys[0].clone()).collect();
        assert_eq!(keys.len(), all.len());
    }

    #[test]
    fn empty_and_long_names_are_refused() {
        for name in [String::new(), "x".repeat(1025)] {
            assert_eq!(Names::new("rc", &name).unwrap_err().kind(), ErrorKind::Config);
        }
    }
}
