//! A random number generator with a seed, so that tests are repeatable.

/// splitmix64
pub(in crate::engine) struct Rng(pub(in crate::engine) u64);

impl Rng {
    pub(in crate::engine) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    #[cfg(all(test, not(shuttle)))]
    pub(in crate::engine) fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }
}

/// Returns the first of a test's seeds: `SEED`, or one made from the process id.
#[cfg(all(test, not(shuttle)))]
pub(in crate::engine) fn first_seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| u64::from(std::process::id()) << 16)
}
