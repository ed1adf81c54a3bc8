//! A host name that leads wherever a test wants, by the system's resolver.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use redis_concurrent_testkit::{Child, is_role};

use crate::support::{LONG, env};

pub const NAME: &str = "locks.test";

/// Known to this process alone.
pub struct Name {
    file: PathBuf,
}

/// Runs `body` in a process of its own, which has a resolver that knows the name: `test` is the full name of the calling test.
pub fn where_a_name_is_known(test: &str, body: impl FnOnce(&Name)) {
    if is_role(test) {
        return body(&Name { file: env("NAME_FILE").into() });
    }
    let folder = tempfile::Builder::new().prefix("name-").tempdir().unwrap();
    let [library, file] = ["names.so", "name"].map(|it| folder.path().join(it).display().to_string());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/failover/dns/names.c");
    let cc = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o", &library, source, "-ldl"]).status();
    assert!(cc.expect("the C compiler that Rust links with").success());
    let environment = [("LD_PRELOAD", &*library), ("NAME", NAME), ("NAME_FILE", &*file)];
    let mut child = Child::spawn(test, &environment).unwrap();
    let status = child.wait_within(6 * LONG).unwrap();
    assert!(status.success(), "{test}, in a process of its own: {status}");
}

impl Name {
    /// The next connection finds these addresses, in this order; none: the name is unknown.
    pub fn leads_to(&self, addresses: &[Ipv4Addr]) {
        self.leads_slowly_to(Duration::ZERO, addresses);
    }

    /// The same, and the resolver takes this time.
    pub fn leads_slowly_to(&self, delay: Duration, addresses: &[Ipv4Addr]) {
        let addresses: Vec<_> = addresses.iter().map(Ipv4Addr::to_string).collect();
        // Readers see all of it or nothing.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{} {}\n", delay.as_millis(), addresses.join(" "))).unwrap();
        fs::rename(&new, &self.file).unwrap();
    }
}
