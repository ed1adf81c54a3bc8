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
mod instructions;
mod links;
mod observer;
mod observers;
mod pitfalls;
mod servers;
mod spans;
mod valgrind;

use std::process::Command;

/// Cargo, without what it tells a test of its package: the build script of a dependency looks at that, so all that
/// depends on it would be built anew, and again by the next `cargo test`.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
            cargo.env_remove(name);
        }
    }
    cargo
}
