//! Includes a rule together with the name of its file.

/// Includes the [rule](crate::kinds::Kind::RULE) from a file, which is found as by [`include_str!`], so that errors
/// in it are reported with the file and the line.
///
/// ```
/// # use redis_concurrent::kinds::{Kind, Reentrancy, Sharing};
/// use redis_concurrent::rule_file;
///
/// # struct Bulkhead;
/// impl Kind for Bulkhead {
///     const RULE: &'static str = rule_file!("../examples/own_kind.lua");
///     // …
/// #   const NAME: &'static str = "bulkhead";
/// #   const SHARING: Sharing = Sharing::Shared;
/// #   const REENTRANCY: Reentrancy = Reentrancy::Independent;
/// }
/// ```
#[macro_export]
macro_rules! rule_file {
    ($path:literal) => {
        concat!("--@ file ", $path, "\n", include_str!($path))
    };
}
