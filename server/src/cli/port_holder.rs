//! Who listens on a port: a best effort from `/proc`, for one error message.

use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The most processes that are looked at.
const MAX_PROCESSES: usize = 10_000;

/// A process that listens.
#[derive(Debug, PartialEq, Eq)]
pub struct PortHolder {
    pid: u32,
    name: String,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// The process that listens on the address, if this user may see it.
pub fn find(address: SocketAddr) -> Option<PortHolder> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .find_map(|table| listening_inode(&fs::read_to_string(table).ok()?, address))?;
    let link = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten().take(MAX_PROCESSES);
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find_map(|pid: u32| {
        let dir = Path::new("/proc").join(pid.to_string());
        let mut files = fs::read_dir(dir.join("fd")).ok()?.flatten();
        files.find(|file| {
            fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == link.as_str())
        })?;
        let name = fs::read_to_string(dir.join("comm")).ok()?.trim().to_owned();
        Some(PortHolder { pid, name })
    })
}

/// The inode of the socket that listens on the address (or on all) in a table of the kernel.
fn listening_inode(table: &str, address: SocketAddr) -> Option<String> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (host, port) = fields.get(1)?.split_once(':')?;
        let same_port = u16::from_str_radix(port, 16).ok()? == address.port();
        let on_all = host.bytes().all(|digit| digit == b'0');
        let same_host = on_all || address.ip().is_unspecified() || host == kernel_form(address.ip());
        (same_port && same_host && *fields.get(3)? == LISTEN)
            .then(|| fields.get(9).map(ToString::to_string))?
    })
}

/// An address as the kernel's tables write it: words of four bytes in the machine's order.
fn kernel_form(ip: IpAddr) -> String {
    let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
    match ip {
        IpAddr::V4(ip) => word(ip.octets()),
        IpAddr::V6(ip) => ip.octets().chunks_exact(4).map(|c| word([c[0], c[1], c[2], c[3]])).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = find(listener.local_addr().unwrap()).unwrap();
        assert_eq!(holder.pid, std::process::id());
    }

    #[test]
    fn a_port_that_nobody_listens_on_has_no_holder() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     0: 0100007F:2537 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n\
                     1: 0100007F:2538 0100007F:2537 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n";
        let inode = |address: &str| listening_inode(table, address.parse().unwrap());
        assert_eq!(inode("127.0.0.1:9527").as_deref(), Some("4711"));
        assert_eq!(inode("0.0.0.0:9527").as_deref(), Some("4711"));
        assert_eq!(inode("127.0.0.2:9527"), None);
        assert_eq!(inode("127.0.0.1:9528"), None);
    }
}
