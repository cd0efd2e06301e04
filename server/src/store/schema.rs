//! Which schema a file has, and the numbered migrations that lead to it. Migrations are only ever added.

use refinery::Runner;

mod channels {
    refinery::embed_migrations!("../migrations/channels");
}
mod runs {
    refinery::embed_migrations!("../migrations/runs");
}
mod workspace {
    refinery::embed_migrations!("../migrations/workspace");
}

/// The schemas of halo's databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// `secrets/channels/channels.db`: accounts.
    Channels,
    /// `global/runs.db`: the workspaces ever used.
    Runs,
    /// `<workspace>/.halo/halo.db`: sessions.
    Workspace,
}

impl Schema {
    /// Every migration of this schema, to be run in one transaction.
    pub(super) fn runner(self) -> Runner {
        let runner = match self {
            Self::Channels => channels::migrations::runner(),
            Self::Runs => runs::migrations::runner(),
            Self::Workspace => workspace::migrations::runner(),
        };
        runner.set_grouped(true)
    }
}
