//! The kind of `examples/own_kind.lua`, as an author outside this crate writes it.

use redis_concurrent::kinds::{Kind, Reentrancy, Sharing};
use redis_concurrent::rule_file;

/// At most `self.0` holders at a time.
#[derive(Clone, Debug)]
pub struct Bulkhead(pub u32);

/// One holder at a time.
impl Default for Bulkhead {
    fn default() -> Self {
        Bulkhead(1)
    }
}

impl Kind for Bulkhead {
    const NAME: &'static str = "bulkhead";
    const RULE: &'static str = rule_file!("../../examples/own_kind.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;

    fn args(&self) -> String {
        self.0.to_string()
    }
}
