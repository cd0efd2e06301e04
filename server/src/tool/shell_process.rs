//! A shell and all that it has started, whatever holds it: nothing for full sessions, a sandbox below. Waiting for it,
//! and ending it.

use super::processes::{Family, MARK, new_mark};
use super::sandbox::{Failure, Started};
use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;

/// How long a killed shell may take to be collected.
const COLLECT: Duration = Duration::from_millis(200);
/// Parts of names of environment variables that hold secrets.
const SECRET_NAMES: [&str; 8] =
    ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY"];

/// A shell in a session of its own. Dropped, it is killed with all it has started.
pub struct Plain {
    child: Box<dyn ChildWrapper>,
    family: Family,
}

impl Plain {
    /// Starts the shell with these arguments. Its environment is `variables`, else the server's without what looks like a
    /// secret.
    pub fn start(
        shell: &Path,
        arguments: &[&OsStr],
        workspace: &Path,
        variables: Option<&[(OsString, OsString)]>,
    ) -> io::Result<(Self, Receiver)> {
        // One pipe for both, so that the order of what is printed is kept.
        let (reader, writer) = io::pipe()?;
        let errors = writer.try_clone()?;
        let mark = new_mark();
        let mut wrap = CommandWrap::with_new(shell, |shell| {
            shell.args(arguments).current_dir(workspace);
            shell.stdin(Stdio::null()).stdout(Stdio::from(writer)).stderr(Stdio::from(errors));
            if let Some(variables) = variables {
                shell.env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
            } else {
                for (name, _) in std::env::vars_os() {
                    if is_secret(&name) {
                        shell.env_remove(name);
                    }
                }
                shell.env("TERM", "dumb").env("PAGER", "cat").env("GIT_PAGER", "cat");
                shell.env("GIT_TERMINAL_PROMPT", "0");
            }
            shell.env(MARK, &mark);
        });
        // A session of its own is also a group of its own, and has no terminal to ask for passwords.
        wrap.wrap(ProcessSession);
        // The wrapper's own wait is for the whole group, and so for what stays in the background. The shell's is not.
        let child = wrap.spawn()?.into_inner();
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| io::Error::other("it ended before it began"))?;
        let family = Family::new(pid, mark);
        // The command holds the writing end: with it the pipe would never end.
        drop(wrap);
        Ok((Self { child, family }, Receiver::from_owned_fd(OwnedFd::from(reader))?))
    }

    async fn stop(mut self) {
        // If the runtime no longer takes work, the family is dropped, which kills it too.
        let _ = tokio::task::spawn_blocking(move || self.family.stop()).await;
        // Dead, but still ours to collect. If it hangs in the kernel, it is collected later.
        let _ = tokio::time::timeout(COLLECT, self.child.wait()).await;
    }
}

/// Whatever runs the command. Dropped, it is killed with all it has started.
pub enum Running {
    /// Of a full session.
    Plain(Plain),
    /// In a sandbox.
    Sandboxed(Started),
}

impl Running {
    /// Waits for the shell to end; what it has started in the background may run on, except in namespaces. A
    /// failure means that it did not run, or is lost.
    pub async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        match self {
            Self::Plain(plain) | Self::Sandboxed(Started::Landlock(plain, _)) => {
                Ok(plain.child.wait().await?)
            }
            Self::Sandboxed(Started::Namespaces { end, .. }) => {
                end.await.unwrap_or_else(|_| Err(Failure::Start(io::Error::other("it was lost"))))
            }
        }
    }

    /// The shell has ended by itself: what a full session left in the background stays.
    pub fn release(self) {
        match self {
            Self::Plain(plain) => plain.family.release(),
            // Nobody could end it later: dropped, it is killed.
            Self::Sandboxed(started) => drop(started),
        }
    }

    /// Ends all of it within about a second.
    pub async fn stop(self) {
        match self {
            Self::Plain(plain) => plain.stop().await,
            Self::Sandboxed(Started::Landlock(plain, _scratch)) => plain.stop().await,
            Self::Sandboxed(Started::Namespaces { end, life }) => {
                // If the runtime no longer takes work, the life is dropped, which kills it too.
                let _ = tokio::task::spawn_blocking(move || life.stop()).await;
                let _ = tokio::time::timeout(COLLECT, end).await;
            }
        }
    }
}

fn is_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("HALO_PASSWORD", true)]
    #[case("HALO_JWT_SECRET", true)]
    #[case("HALO_ACP_TOKEN", true)]
    #[case("ANTHROPIC_API_KEY", true)]
    #[case("AWS_SECRET_ACCESS_KEY", true)]
    #[case("AWS_SESSION_TOKEN", true)]
    #[case("openai_apikey", true)]
    #[case("PATH", false)]
    #[case("HOME", false)]
    #[case("AWS_REGION", false)]
    #[case("HALO_HOME", false)]
    fn variables_that_look_like_secrets_are_not_passed_on(#[case] name: &str, #[case] secret: bool) {
        assert_eq!(is_secret(OsStr::new(name)), secret);
    }
}
