//! A Redis in memory that runs the deployed scripts, and what shows that it does what a server does.

mod compare;
mod redis;
