//! A rule's text, and the file that it is from.

/// The [rule](crate::Kind::RULE) in this file, which is found as by [`include_str!`]: errors in it are then told with
/// the file and the line.
///
/// ```
/// # use redis_concurrent::{Kind, Reentrancy, Sharing};
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
