//! How much memory this process has.

use std::io;

/// Bytes of this process that are in memory.
pub(crate) fn resident() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|n| n.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| io::Error::other("no VmRSS in /proc/self/status"))? * 1024)
}
