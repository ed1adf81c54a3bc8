//! A lock over several servers: what it takes to hold it, what becomes of it when servers die, hang or are
//! slow, and what is left behind.

mod asking;
mod chaos;
mod faults;
mod fixture;
mod forms;
mod losing;
mod making;
mod questions;
mod young;
