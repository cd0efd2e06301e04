//! What the whole-stack tests share: the real programs on a home of their own, the clients that drive them, a
//! proxy that breaks connections, and a scripted model. A broken precondition is a failed test, so the harness
//! panics with the reason; every wait has a limit.

#![allow(clippy::print_stderr, reason = "what a failed test shows goes to stderr")]

pub mod acp;
pub mod binaries;
pub mod metadata;
pub mod model_server;
pub mod old_home;
pub mod place;
pub mod processes;
pub mod proxy;
pub mod server;
pub mod small_disk;
pub mod web;

use std::future::Future;
use std::time::Duration;

/// How long one wait of a test may take, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome of `future`; panics with `what` when it takes longer than [`PATIENCE`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, future).await;
    outcome.unwrap_or_else(|elapsed| panic!("{elapsed} after {PATIENCE:?}: {what}"))
}

/// Whether a tool that a test needs is there. In CI (`CI` is set) a missing one fails the test, elsewhere the
/// test says how to get it and ends.
pub fn tool_or_skip(name: &str, works: bool, mend: &str) -> bool {
    if !works {
        assert!(std::env::var_os("CI").is_none(), "{name} does not work here: {mend}");
        eprintln!("skipped, {name} does not work here: {mend}");
    }
    works
}
