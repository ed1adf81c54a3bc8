//! What stands around the library: its observers, its costs, its demo, its pages, and the test kit itself.

#[path = "../support/diary.rs"]
mod diary;
#[path = "../support/mod.rs"]
mod support;

mod architecture;
mod budgets;
mod columns;
mod compile_fail;
mod cost;
mod dashboards;
mod demo;
mod figures;
mod harness;
mod imports;
mod links;
mod observer;
mod observers;
mod pitfalls;
mod servers;
mod spans;
mod valgrind;
