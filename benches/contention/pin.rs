//! The core that everything runs on.

use std::io;
use std::process::{Command, Stdio};

/// Puts this process on core 0, and with it whatever it starts from now on.
///
/// With client and server on one core, a round trip does not wake another core. In a virtual machine that
/// wake-up costs more than the round trip, and varies from run to run.
pub(crate) fn to_one_core() -> io::Result<()> {
    let pid = std::process::id().to_string();
    let mut taskset = Command::new("taskset");
    let status = taskset.args(["-a", "-c", "-p", "0", &pid]).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("taskset: {status}"))),
        Err(e) => Err(io::Error::new(e.kind(), format!("pinning needs taskset of util-linux: {e}"))),
    }
}
