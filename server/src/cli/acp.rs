//! `halo acp`: becomes the sibling program `halo-acp`, with the same arguments.

use clap::Args;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Handed on unread.
#[derive(Debug, Args)]
pub struct AcpArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    rest: Vec<OsString>,
}

/// Replaces this process by `halo-acp`: the one beside this binary, else the one on PATH. Returns only when
/// that fails.
pub fn run(args: &AcpArgs) -> anyhow::Result<ExitCode> {
    let sibling = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("halo-acp")));
    let program = sibling.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("halo-acp"));
    let error = Command::new(&program).args(&args.rest).exec();
    let reason = match error.kind() {
        ErrorKind::NotFound => "it is neither beside halo nor on PATH".to_owned(),
        _ => crate::config::problem::os_reason(&error),
    };
    anyhow::bail!(
        "cannot run {}: {reason}; build it with `cargo build --release --bins`, or put halo-acp beside halo or on \
         PATH",
        program.display()
    )
}
