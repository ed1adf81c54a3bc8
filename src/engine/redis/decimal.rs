//! Numbers as text, without a formatter and an allocation: each request has several.

use std::ops::Deref;

/// The digits of the longest number.
const MOST: usize = 20;

/// A number in decimal digits.
pub(crate) struct Decimal {
    digits: [u8; MOST],
    /// Where they begin.
    from: usize,
}

impl Decimal {
    pub(crate) fn of(mut n: u64) -> Self {
        let (mut digits, mut from) = ([b'0'; MOST], MOST - 1);
        digits[from] = digit(n);
        while n >= 10 {
            n /= 10;
            from -= 1;
            digits[from] = digit(n);
        }
        Decimal { digits, from }
    }
}

impl Deref for Decimal {
    type Target = str;

    fn deref(&self) -> &str {
        // They are all digits.
        str::from_utf8(&self.digits[self.from..]).unwrap_or_default()
    }
}

/// The last digit of `n`.
pub(crate) fn digit(n: u64) -> u8 {
    b'0' + (n % 10) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_a_formatter_would_write() {
        for n in [0, 1, 9, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            assert_eq!(&*Decimal::of(n), n.to_string());
        }
    }
}
