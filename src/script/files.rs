//! The Lua files that scripts are made of, but for the kinds' rules.

/// A Lua file of ours: its path, and what it says.
pub(super) type File = (&'static str, &'static str);

/// Files of `lua/lib/`.
macro_rules! lib {
    ($($name:literal)*) => {
        [$((concat!("lua/lib/", $name, ".lua"), include_str!(concat!("../../lua/lib/", $name, ".lua")))),*]
    };
}

/// What the operations share. Each sees what stands before it.
pub(super) const PARTS: [File; 7] = lib!("prelude" "clock" "foreign" "queue" "join" "condition" "turn");
/// Acquire, leave, renew, inspect, change, adopt.
pub(super) const OPERATIONS: [File; 6] = lib!("acquire" "leave" "renew" "inspect" "change" "adopt");
/// Those of a condition's waiters that stand in the place of acquire, leave and change.
pub(super) const OF_CONDITIONS: [File; 3] = lib!("await" "quit" "signal");
/// What runs one operation on several locks.
pub(super) const AROUND: [File; 1] = lib!("all");
