//! Random numbers that a seed determines, for tests that are repeatable.

/// splitmix64.
pub(in crate::engine) struct Rng(pub(in crate::engine) u64);

impl Rng {
    pub(in crate::engine) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// True in `n` of a hundred cases.
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(in crate::engine) fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }
}

/// The seed that `SEED` names, or one of this process.
#[cfg(not(shuttle))]
pub(in crate::engine) fn first_seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| u64::from(std::process::id()) << 16)
}
