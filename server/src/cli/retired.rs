//! Commands of the Node program that this one does not have: one clear line each, and what to use.

use clap::Args;
use std::ffi::OsString;
use std::process::ExitCode;

/// Whatever an old script passes.
#[derive(Debug, Args)]
pub struct RetiredArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

/// A command that is no part of this program.
pub fn gone(command: &str) -> anyhow::Result<ExitCode> {
    let instead = match command {
        "tui" | "cli" => "connect an editor with `halo acp`, or use the HTTP API under /api/web",
        "agents" => "agents are folders below global/agents of halo's home; edit their files",
        "sessions" => "list sessions in the editor, or with GET /api/web/sessions",
        _ => "replace the binaries halo and halo-acp with newer ones",
    };
    anyhow::bail!("`halo {command}` is not part of this program; {instead}")
}

/// A command that comes with a later version.
pub fn later(command: &str) -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "`halo {command}` comes with a later version; until then run `halo server` and reach it over the web channel"
    )
}
