//! Elections: who leads, for how long, and what others see of it.

mod beginning;
mod campaigning;
mod observing;
mod running;
