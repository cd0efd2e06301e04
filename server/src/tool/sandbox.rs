//! What shell commands of sessions below full access run in: `bwrap` where a trial of it works, else Landlock for
//! readonly sessions, else nothing, and then they do not run. The choice is made once, in the background of the
//! start; who needs it earlier waits for it.
//!
//! `view` plans what a command sees, `bwrap` and `landlock` make it so, `network` gives it a network, `namespace` runs
//! it. What is hidden is [`crate::workspace::hidden`]'s knowledge.

mod bounded;
mod bwrap;
mod environment;
mod inherited;
mod landlock;
mod namespace;
mod network;
mod programs;
mod start;
mod syscalls;
mod trial;
mod view;

pub use namespace::Failure;
pub use start::{Begun, Refusal, Started, start};
pub use trial::{Backend, Verdict};

use crate::store::Database;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// `general.sandbox.network`: the network of sandboxed commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkUse {
    /// One of its own where that can be made, without the addresses at which clouds hand out credentials; else the
    /// machine's.
    On,
    /// None.
    Off,
    /// The machine's.
    Host,
}

impl NetworkUse {
    /// The words of the setting, the default first.
    pub const WORDS: [&'static str; 3] = ["on", "off", "host"];

    /// Reads the setting. Anything unknown is [`NetworkUse::Off`].
    pub fn from_setting(word: &str) -> Self {
        match word {
            "on" => Self::On,
            "host" => Self::Host,
            _ => Self::Off,
        }
    }
}

/// The sandbox of this server.
pub struct Sandbox {
    user_home: PathBuf,
    halo_home: PathBuf,
    /// The workspaces ever used: what halo keeps in them is hidden from the commands of others.
    runs: Option<Database>,
    verdict: OnceLock<Verdict>,
}

impl Sandbox {
    /// Nothing is tried yet.
    pub fn new(user_home: PathBuf, halo_home: PathBuf, runs: Option<Database>) -> Arc<Self> {
        Arc::new(Self { user_home, halo_home, runs, verdict: OnceLock::new() })
    }

    /// Tries it in the background.
    pub fn begin(self: &Arc<Self>) {
        let own = Arc::clone(self);
        let begun = std::thread::Builder::new().name("halo-sandbox".into()).spawn(move || {
            own.verdict();
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "the sandbox is tried with the first command");
        }
    }

    /// What works here. The first call takes some 100 ms and at most a minute; others wait for it. Blocks.
    pub fn verdict(&self) -> &Verdict {
        self.verdict.get_or_init(|| {
            let verdict = Verdict::reach(&self.user_home, &self.halo_home);
            match (verdict.backend.as_ref(), &verdict.without_bwrap) {
                (Some(backend), None) => tracing::info!(sandbox = backend.name(), "shell commands"),
                (backend, why) => {
                    let why = why.as_deref().unwrap_or_default();
                    let instead = backend.map_or("none", Backend::name);
                    tracing::warn!(sandbox = instead, "no bwrap for shell commands: {why}");
                }
            }
            verdict
        })
    }

    /// The same for who must not block.
    pub async fn settled(self: &Arc<Self>) -> Arc<Self> {
        if self.verdict.get().is_none() {
            let own = Arc::clone(self);
            // If the runtime ends meanwhile, nobody asks any more.
            let _ = tokio::task::spawn_blocking(move || {
                own.verdict();
            })
            .await;
        }
        Arc::clone(self)
    }

    /// `bwrap` or `landlock`, as `GET /api/health` says it; none while it is not known.
    pub fn name(&self) -> Option<&'static str> {
        self.verdict.get().and_then(|verdict| verdict.backend.as_ref()).map(Backend::name)
    }

    /// Whether commands of readonly sessions run. Blocks like [`Self::verdict`].
    pub fn holds(&self) -> bool {
        self.verdict().backend.is_some()
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("name", &self.name()).finish_non_exhaustive()
    }
}
