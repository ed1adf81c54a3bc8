//! Orders drawn at random from a seed: the same seed draws the same orders.

use std::collections::HashMap;

use super::order::Order;

const CUSTOMERS: u64 = 2_500;
/// By rank: the product of rank *r* is ordered with the weight 1/*r*, so about a quarter of all orders want
/// the first one, and most contention is for its stock.
const PRODUCTS: [&str; 24] = [
    "headphones",
    "sneakers",
    "console",
    "smartwatch",
    "drone",
    "backpack",
    "keyboard",
    "camera",
    "kettle",
    "blender",
    "lamp",
    "speaker",
    "tablet",
    "scooter",
    "jacket",
    "tent",
    "monitor",
    "router",
    "printer",
    "guitar",
    "desk",
    "chair",
    "toaster",
    "fan",
];
/// Most orders are of one piece.
const PIECES: [u32; 5] = [1, 1, 1, 2, 3];
/// One order in this many is followed by a second one of the same customer for the same product, as from a
/// page that was submitted twice.
const REPEATED: u64 = 5;
/// The second order follows within this many orders: close enough for two processes to have both in hand at
/// once.
const APART: u64 = 12;

/// Returns `count` orders of this seed, in the order in which they arrive.
pub fn orders(seed: u64, count: usize) -> Vec<Order> {
    let mut random = SplitMix(seed);
    let mut repeated: HashMap<usize, (String, &str)> = HashMap::new();
    let mut order = |line| {
        let (customer, product) = repeated.remove(&line).unwrap_or_else(|| {
            let drawn = (format!("c{:04}", random.below(CUSTOMERS)), random.product());
            let later = line + 1 + random.below(APART) as usize;
            if random.below(REPEATED) == 0 {
                repeated.entry(later).or_insert_with(|| drawn.clone());
            }
            drawn
        });
        let quantity = PIECES[random.below(PIECES.len() as u64) as usize];
        Order { id: format!("o{:05}", line + 1), customer, product: product.to_owned(), quantity }
    };
    (0..count).map(&mut order).collect()
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `n` - 1, uniform but for less than one part in 2^50 with the small `n`
    /// here.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn product(&mut self) -> &'static str {
        let weight = |rank: usize| 1.0 / (rank + 1) as f64;
        let all: f64 = (0..PRODUCTS.len()).map(weight).sum();
        let mut left = all * (self.next() as f64 / u64::MAX as f64);
        let rank = (0..PRODUCTS.len()).find(|rank| {
            left -= weight(*rank);
            left <= 0.0
        });
        PRODUCTS[rank.unwrap_or(PRODUCTS.len() - 1)]
    }
}
