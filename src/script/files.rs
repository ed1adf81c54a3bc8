//! The Lua files that scripts are composed of, except for the kinds' rules.

/// A Lua file of this library: its path and its text.
pub(super) type File = (&'static str, &'static str);

/// Files of `lua/lib/`.
macro_rules! lib {
    ($($name:literal)*) => {
        [$((concat!("lua/lib/", $name, ".lua"), include_str!(concat!("../../lua/lib/", $name, ".lua")))),*]
    };
}

/// What the operations share. Each file sees the definitions of those before it.
pub(super) const PARTS: [File; 7] = lib!("prelude" "clock" "foreign" "queue" "join" "condition" "turn");
/// Acquire, leave, renew, inspect, change, adopt.
pub(super) const OPERATIONS: [File; 6] = lib!("acquire" "leave" "renew" "inspect" "change" "adopt");
/// The operations for a condition's waiters that take the place of acquire, leave and change.
pub(super) const OF_CONDITIONS: [File; 3] = lib!("await" "quit" "signal");
/// The script that wraps an operation to run it on several locks.
pub(super) const AROUND: [File; 1] = lib!("all");
