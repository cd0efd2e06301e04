//! A network of its own for one sandboxed command: `slirp4netns` carries its connections, and the addresses at which
//! clouds hand out credentials are unreachable in it. It fails closed: until every route stands the command waits,
//! and when one cannot be set the command does not run.
//!
//! IPv6 is not carried, so nothing of it can be reached and it needs no routes.

use super::bounded;
use super::programs::{find, find_admin};
use crate::net::policy::credential_ranges_v4;
use rustix::process::Pid;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long `slirp4netns` and `ip` may take to set up, each.
const SETUP: Duration = Duration::from_secs(10);
/// How long `slirp4netns` may take to end.
const END: Duration = Duration::from_secs(2);
/// Where `slirp4netns` answers for the machine's name servers.
const NAME_SERVER: &str = "10.0.2.3";
const DEVICE: &str = "tap0";
/// What `slirp4netns` makes its device with; some machines keep it to root.
const TUN: &str = "/dev/net/tun";

/// The programs that make a network.
#[derive(Clone, Debug)]
pub struct Tools {
    slirp: PathBuf,
    nsenter: PathBuf,
    ip: PathBuf,
}

impl Tools {
    /// Those of this machine; the error says what to install.
    pub fn find() -> Result<Self, String> {
        let missing = |name: &str, package: &str| format!("{name} is not installed (apt install {package})");
        let tools = Self {
            slirp: find("slirp4netns").ok_or_else(|| missing("slirp4netns", "slirp4netns"))?,
            nsenter: find_admin("nsenter").ok_or_else(|| missing("nsenter", "util-linux"))?,
            ip: find_admin("ip").ok_or_else(|| missing("ip", "iproute2"))?,
        };
        // Opened, it is no device yet.
        File::options()
            .read(true)
            .write(true)
            .open(TUN)
            .map_err(|error| format!("slirp4netns needs {TUN}: {error} (modprobe tun; chmod 666 {TUN})"))?;
        Ok(tools)
    }
}

/// A network that is up. Dropped, it ends.
#[derive(Debug)]
pub struct Network {
    slirp: Child,
    /// `slirp4netns` ends when this closes, also when the server is killed.
    life: Option<PipeWriter>,
}

impl Network {
    /// Sets up the network of the namespace that the process `inside` is in. Blocks for some 10 ms, at most
    /// 20 s.
    pub fn open(tools: &Tools, inside: Pid) -> Result<Self, String> {
        let (mut ready, ready_writer) = io::pipe().map_err(|error| format!("a pipe: {error}"))?;
        let (life_reader, life) = io::pipe().map_err(|error| format!("a pipe: {error}"))?;
        let pid = inside.as_raw_nonzero().to_string();
        let slirp = Command::new(&tools.slirp)
            .args(["--configure", "--mtu=65520", "--disable-host-loopback"])
            // Both are among the three that every program gets, so none leaks into another.
            .args(["--ready-fd=0", "--exit-fd=1", &pid, DEVICE])
            .stdin(Stdio::from(ready_writer))
            .stdout(Stdio::from(life_reader))
            .stderr(Stdio::null())
            .env_clear()
            .spawn()
            .map_err(|error| format!("slirp4netns: {error}"))?;
        let network = Self { slirp, life: Some(life) };
        let mut word = [0];
        let is_ready = bounded::readable_within(&ready, SETUP) && matches!(ready.read(&mut word), Ok(1));
        if !is_ready {
            return Err("slirp4netns did not come up".into());
        }
        close_credentials(tools, &pid)?;
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.life = None;
        if let Err(error) = bounded::wait(&mut self.slirp, END) {
            tracing::warn!(%error, "slirp4netns did not end by itself");
        }
    }
}

fn close_credentials(tools: &Tools, pid: &str) -> Result<(), String> {
    let lines: Vec<String> =
        credential_ranges_v4().map(|range| format!("route add unreachable {range}\n")).collect();
    let mut command = Command::new(&tools.nsenter);
    command
        .env_clear()
        .args(["-U", "-n", "-t", pid, "--preserve-credentials"])
        .arg(&tools.ip)
        .args(["-batch", "-"]);
    match bounded::run(command, lines.concat().as_bytes(), SETUP) {
        Ok((status, _)) if status.success() => Ok(()),
        Ok((status, text)) => {
            Err(format!("the credentials addresses could not be closed off: ip: {status} {text}"))
        }
        Err(error) => Err(format!("the credentials addresses could not be closed off: {error}")),
    }
}

/// Writes the `resolv.conf` of sandboxed commands with their own network into `halo_home`, and gives its path. Search
/// domains and options are the machine's.
pub fn resolv_conf(halo_home: &Path) -> io::Result<PathBuf> {
    let mut text = format!("nameserver {NAME_SERVER}\n");
    let machine = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let kept = machine
        .lines()
        .filter(|line| matches!(line.split_ascii_whitespace().next(), Some("search" | "domain" | "options")));
    for line in kept {
        text.push_str(line);
        text.push('\n');
    }
    let path = halo_home.join(".sandbox-resolv.conf");
    if fs::read_to_string(&path).is_ok_and(|now| now == text) {
        return Ok(path);
    }
    let mut file = tempfile::NamedTempFile::new_in(halo_home)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.persist(&path)?;
    Ok(path)
}
