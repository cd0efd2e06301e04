//! What `halo doctor` says of the sandbox of shell commands: which one works, and whether commands in it reach the
//! addresses at which clouds hand out credentials.

use super::{Finding, good, note};
use crate::config::{Environment, Home, Live, Overrides};
use crate::tool::sandbox::{Backend, NetworkUse, Verdict};

/// Tries the sandbox for real.
pub fn findings(home: &Home, environment: &Environment) -> Vec<Finding> {
    let loaded = Live::load(home, environment.clone(), Overrides::default(), Vec::new());
    let word = loaded.map(|(live, _)| live.current().sandbox_network.clone()).unwrap_or_default();
    let wanted = NetworkUse::from_setting(&word);
    let verdict = Verdict::reach(&crate::app::user_home(), home.path());
    let why = verdict.without_bwrap.as_deref().unwrap_or_default();
    match &verdict.backend {
        Some(Backend::Bwrap(program)) => {
            let mut findings = vec![good("sandbox", format!("bwrap ({})", program.display()))];
            findings.push(network(wanted, verdict.network.as_ref().err()));
            findings
        }
        Some(Backend::Landlock) => vec![
            note(
                "sandbox",
                format!("landlock: commands of readonly sessions run, those of workspace ones do not: {why}"),
            ),
            note("network", format!("{IN_REACH} {why}")),
        ],
        None => {
            let landlock = verdict.without_landlock.as_deref().unwrap_or_default();
            vec![note(
                "sandbox",
                format!(
                    "none, so shell commands need full access: {why}; Landlock does not work either: {landlock}"
                ),
            )]
        }
    }
}

const IN_REACH: &str = "sandboxed commands use the machine's network, so on a cloud machine its credentials address \
                        (169.254.169.254) is in reach of them;";

fn network(wanted: NetworkUse, missing: Option<&String>) -> Finding {
    match (wanted, missing) {
        (NetworkUse::Off, _) => good("network", "none for sandboxed commands"),
        (NetworkUse::Host, _) => note(
            "network",
            format!("{IN_REACH} set general.sandbox.network to `on` unless they need its localhost"),
        ),
        (NetworkUse::On, None) => {
            good("network", "sandboxed commands have their own, without the credentials addresses of clouds")
        }
        (NetworkUse::On, Some(why)) => {
            note("network", format!("{IN_REACH} {why}, or set general.sandbox.network to `off`"))
        }
    }
}
