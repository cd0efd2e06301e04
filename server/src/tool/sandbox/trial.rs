//! Which sandbox works on this machine: a real command in a real one, and for what does not work the reason and how
//! to mend it.

use super::environment::{self, Variable};
use super::namespace::{self, Control, Failure, Launch};
use super::network::Tools;
use super::programs::find;
use super::start::Plan;
use super::{NetworkUse, Sandbox, landlock};
use crate::access::AccessLevel;
use crate::tool::{Context, Limits};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The workspace of the trial, below halo's home; stays there.
const TRIAL_FOLDER: &str = ".sandbox-trial";

/// What sandboxes a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// This `bwrap`: workspace and readonly sessions.
    Bwrap(PathBuf),
    /// The kernel's Landlock: readonly sessions.
    Landlock,
}

impl Backend {
    /// The name in `GET /api/health`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Bwrap(_) => "bwrap",
            Self::Landlock => "landlock",
        }
    }
}

/// What was found.
#[derive(Debug)]
pub struct Verdict {
    /// What is used; without, commands below full access are refused.
    pub backend: Option<Backend>,
    /// Why it is not `bwrap`, and how to mend that.
    pub without_bwrap: Option<String>,
    /// Why it is not Landlock either.
    pub without_landlock: Option<String>,
    /// What makes a command's own network; else why not, and how to mend that.
    pub network: Result<Tools, String>,
    /// Who commits.
    pub identity: Vec<Variable>,
}

impl Verdict {
    /// Tries everything. Blocks for some 100 ms, at most a minute.
    pub fn reach(user_home: &Path, halo_home: &Path) -> Self {
        let mut verdict = Self {
            backend: None,
            without_bwrap: None,
            without_landlock: None,
            network: Err("only bwrap gives commands a network of their own".into()),
            identity: environment::git_identity(user_home),
        };
        match try_bwrap(user_home, halo_home) {
            Ok((program, network)) => {
                verdict.backend = Some(Backend::Bwrap(program));
                verdict.network = network;
            }
            Err(why) => {
                verdict.without_bwrap = Some(why);
                match landlock::trial() {
                    Ok(()) => verdict.backend = Some(Backend::Landlock),
                    Err(why) => verdict.without_landlock = Some(why),
                }
            }
        }
        verdict
    }
}

fn try_bwrap(user_home: &Path, halo_home: &Path) -> Result<(PathBuf, Result<Tools, String>), String> {
    let program = find("bwrap").ok_or("bubblewrap is not installed (apt install bubblewrap)")?;
    // Always the same one: a server that ends during the trial leaves nothing that adds up.
    let folder = halo_home.join(TRIAL_FOLDER);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let context = Context {
        workspace: folder,
        user_home: user_home.to_owned(),
        halo_home: halo_home.to_owned(),
        access: AccessLevel::Workspace,
        hidden_dirs: Arc::default(),
        hidden_files: Arc::default(),
        writable_dirs: Arc::default(),
        sandbox: Sandbox::new(user_home.to_owned(), halo_home.to_owned(), None),
        sandbox_network: NetworkUse::On,
        url_allowlist: Arc::default(),
        params: Arc::default(),
        limits: Limits::default(),
        cancel: CancellationToken::new(),
    };
    let attempt = |network| {
        let plan = Plan {
            program: &program,
            shell: "/bin/bash".as_ref(),
            context: &context,
            workspaces: &[],
            identity: &[],
            network,
        };
        let launch = plan.launch(&["true".as_ref()])?;
        run(&launch).map_err(|failure| match failure {
            Failure::Setup(said) => said,
            other => other.to_string(),
        })
    };
    attempt(start_network(None)).map_err(|said| format!("bwrap does not work: {}", mend(&said)))?;
    let network = Tools::find().and_then(|tools| {
        attempt(start_network(Some(&tools)))
            .map(|()| tools)
            .map_err(|why| format!("slirp4netns is installed and does not work: {why}"))
    });
    Ok((program, network))
}

fn start_network(tools: Option<&Tools>) -> super::start::CommandNetwork {
    tools.map_or(super::start::CommandNetwork::Machine, |tools| {
        super::start::CommandNetwork::Own(Some(tools.clone()))
    })
}

fn run(launch: &Launch) -> Result<(), Failure> {
    let (status, _network) = namespace::run(launch, namespace::nowhere()?, &Control::default())?;
    if status.success() { Ok(()) } else { Err(Failure::Setup(format!("`true` ended with {status}"))) }
}

/// The likely cause, in words that tell what to do.
fn mend(said: &str) -> String {
    let setting = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    if setting("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "user namespaces are off for users (sysctl kernel.unprivileged_userns_clone=1)".into();
    }
    if setting("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return "user namespaces are off (sysctl user.max_user_namespaces=10000)".into();
    }
    let said = said.lines().last().unwrap_or_default().trim_start_matches("bwrap: ");
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return format!(
            "AppArmor keeps programs from making user namespaces; give bwrap a profile that allows `userns` \
             (package apparmor-profiles), or sysctl kernel.apparmor_restrict_unprivileged_userns=0 ({said})"
        );
    }
    format!("{said}; in a container it needs leave to make namespaces and to mount /proc")
}
