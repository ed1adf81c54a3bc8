//! A test for both kinds of lock.

/// Turns a body that takes any kind of lock into a test for each of the two.
macro_rules! both {
    ($($(#[$note:meta])* $name:ident;)*) => {$(
        $(#[$note])*
        mod $name {
            #[test]
            fn simple_lock() {
                super::bodies::$name(redis_concurrent::kinds::Simple);
            }

            #[test]
            fn reentrant_lock() {
                super::bodies::$name(redis_concurrent::kinds::Reentrant);
            }
        }
    )*};
}
pub(crate) use both;
