//! Work on files happens on blocking threads and looks at the cancel token itself. This waits for it, and after
//! a stop not for long: a network disk may hang where no token is seen.

use super::{Context, Output};
use std::time::Duration;

/// How long after a stop the work may take to notice it.
const GRACE: Duration = Duration::from_secs(1);

/// Runs `work` on a blocking thread.
pub async fn run<R: Into<Output> + Send + 'static>(
    context: &Context,
    work: impl FnOnce(&Context) -> R + Send + 'static,
) -> Output {
    let own = context.clone();
    let task = tokio::task::spawn_blocking(move || work(&own));
    let stopped = async {
        context.cancel.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        done = task => match done {
            Ok(result) => result.into(),
            Err(error) => {
                tracing::error!(%error, "a tool failed inside");
                Output::error("the tool failed inside; the server's log says more")
            }
        },
        () = stopped => Output::error("stopped"),
    }
}
