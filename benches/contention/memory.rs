//! How much memory this process uses.

use std::io;

/// Returns the bytes that this process has allocated and that are resident. Pages of the program itself,
/// which are loaded on demand, do not count. The count is exact, while `/proc/self/status` estimates.
pub(crate) fn resident() -> io::Result<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Anonymous:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|n| n.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| io::Error::other("no Anonymous in /proc/self/smaps_rollup"))? * 1024)
}
