//! The fault in force, in a build with all of them.

use std::sync::OnceLock;

use super::faults;
use super::in_lua::IN_LUA;
use super::places::mark;

/// Whether this fault is in force.
pub(crate) fn is(fault: &str) -> bool {
    in_force() == fault
}

/// Returns the name of the fault; empty if there is none.
fn in_force() -> &'static str {
    static NAME: OnceLock<&'static str> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::env::var("PLANTED").unwrap_or_default();
        let known = faults::all().map(|fault| fault.name).find(|known| *known == name);
        known.unwrap_or_else(|| if name.is_empty() { "" } else { panic!("PLANTED={name}: no such fault") })
    })
}

/// Returns a script with the right text at each place of a fault.
pub(crate) fn lua(script: &str) -> String {
    IN_LUA.iter().enumerate().fold(script.to_owned(), |script, (i, at)| {
        let mark = mark(i);
        match at.becomes.strip_prefix(at.text) {
            Some(more) => script.replace(&mark, if is(at.fault) { more } else { "" }),
            None => {
                let marked = format!("{mark} {}", at.text.trim_start());
                script.replace(&marked, if is(at.fault) { at.becomes } else { at.text })
            }
        }
    })
}
