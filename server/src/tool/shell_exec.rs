//! `shell_exec`: runs a command line in a session of its own and gives what it prints. Returns when the shell
//! ends, also when a child in the background still holds the pipe; timeout and stop end the shell and all it has
//! started. Below full access it runs in [`super::sandbox`]; else its only brake is [`super::rm_guard`].

#[cfg(test)]
mod tests;

use super::args::Args;
use super::rm_guard::RmGuard;
use super::sandbox::{self, Failure, Refusal};
use super::shell_output::HeadAndTail;
use super::shell_process::{Plain, Running};
use super::{Context, Cut, Output, Tool, shell_params};
use crate::access::AccessLevel;
use crate::model::ToolSpec;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// How long output is awaited after the shell has ended, when something else holds the pipe.
const DRAIN: Duration = Duration::from_millis(100);
/// What in the output of a failed command tells that the sandbox may have refused something.
const REFUSALS: [&str; 5] =
    ["Read-only file system", "Operation not permitted", "Permission denied", "EROFS", "EPERM"];

/// The shell: bash where there is one.
static SHELL: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/bin"), PathBuf::from("/usr/bin")])
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("bash"))
        .find(|bash| bash.is_file())
        .unwrap_or_else(|| PathBuf::from("/bin/sh"))
});

/// The tool.
#[derive(Debug, Default)]
pub struct ShellExec {
    /// Described as sessions below full access find it.
    sandboxed: bool,
}

impl ShellExec {
    /// As it is described to sessions below full access. What it does depends on the session alone.
    pub fn sandboxed() -> Self {
        Self { sandboxed: true }
    }
}

impl Tool for ShellExec {
    fn spec(&self) -> ToolSpec {
        let rest = if self.sandboxed {
            "It runs in a sandbox: hidden places look empty, /tmp is empty and the command's own, and what may not \
             be written is read-only. Everything that it starts ends with it, also with nohup or setsid: a server \
             and what uses it belong into one command. It is stopped after the server's time limit (120 s unless \
             set otherwise). Standard input is empty."
        } else {
            "It is stopped after the server's time limit (120 s unless set otherwise): start what runs longer with \
             `nohup … > file 2>&1 &`. Nothing can be typed in: standard input is empty. Variables of the \
             environment that look like secrets (names with SECRET, TOKEN, PASSWORD, API_KEY and the like) are not \
             passed on."
        };
        ToolSpec {
            name: "shell_exec".into(),
            description: format!(
                "Runs a command line in the workspace (bash, or sh where there is no bash) and gives what it \
                 prints. {rest}"
            ),
            parameters: json!({
                "type": "object",
                "properties": {"command": {"type": "string", "description": "The command line"}},
                "required": ["command"],
            }),
        }
    }

    fn cut(&self) -> Cut {
        // Errors stand at the end, and the exit code.
        Cut::Middle
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        async move {
            let input = shell_params::filled(input, context);
            let output = match check(&Args::new("shell_exec", &input), context) {
                Ok(command) => execute(command, context).await,
                Err(reason) => Output::error(reason),
            };
            shell_params::masked(output, context)
        }
        .boxed()
    }
}

fn check<'a>(args: &Args<'a>, context: &Context) -> Result<&'a str, String> {
    let command = args.filled_text("command")?;
    if command.contains('\0') {
        return Err("the command holds a NUL character, which no command line can".into());
    }
    let guard = RmGuard::new(&context.workspace, &context.user_home, &context.halo_home);
    guard.check(command).map(|()| command)
}

/// How a command ended.
enum End {
    Exited(ExitStatus),
    TimedOut,
    Stopped,
}

async fn execute(command: &str, context: &Context) -> Output {
    if context.cancel.is_cancelled() {
        return Output::error("stopped before it began");
    }
    let (mut running, mut pipe) = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Output::error("stopped before it began"),
        begun = begin(command, context) => match begun {
            Ok(begun) => begun,
            Err(refusal) => return refused(&refusal, context),
        },
    };
    let mut output = HeadAndTail::new(context.limits.shell_output_bytes);
    let mut buffer = vec![0; 64 * 1024];
    let mut open = true;
    let timeout = tokio::time::sleep(context.limits.shell_timeout);
    tokio::pin!(timeout);
    let end = loop {
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => break End::Stopped,
            () = &mut timeout => break End::TimedOut,
            status = running.wait() => match status {
                Ok(status) => break End::Exited(status),
                Err(failure) => return failed(failure, context),
            },
            read = pipe.read(&mut buffer), if open => match read {
                Ok(size) if size > 0 => output.push(&buffer[..size]),
                _ => open = false,
            },
        }
    };
    if let End::Exited(_) = end {
        running.release();
    } else {
        running.stop().await;
    }
    if open {
        let drain = async {
            while let Ok(size @ 1..) = pipe.read(&mut buffer).await {
                output.push(&buffer[..size]);
                // A child that never stops writing must not keep the time limit from being seen.
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(DRAIN, drain).await;
    }
    describe(output.into_text(), &end, context)
}

async fn begin(command: &str, context: &Context) -> Result<(Running, Receiver), Refusal> {
    if context.access == AccessLevel::Full {
        let (plain, pipe) =
            Plain::start(&SHELL, &["-c".as_ref(), command.as_ref()], &context.workspace, None)
                .map_err(Refusal::Start)?;
        return Ok((Running::Plain(plain), pipe));
    }
    let begun = sandbox::start(&SHELL, command, context).await?;
    Ok((Running::Sandboxed(begun.started), begun.pipe))
}

/// It did not run.
fn refused(refusal: &Refusal, context: &Context) -> Output {
    match refusal {
        Refusal::None(why) => Output::error(format!(
            "[Sandbox] This session runs at \"{}\" access: shell_exec is refused, because {why}. Use the file \
             tools, or ask the user for a session with full access",
            context.access
        )),
        Refusal::Start(error) => {
            let advice = if error.kind() == io::ErrorKind::ArgumentListTooLong {
                ": the command is too long; write it to a file with file_write and run that"
            } else if !context.workspace.is_dir() {
                ": the workspace folder is gone"
            } else {
                ""
            };
            Output::error(format!("the command could not be started: {error}{advice}"))
        }
    }
}

/// It did not run, or is lost. What the sandbox says of itself is in the log alone.
fn failed(failure: Failure, context: &Context) -> Output {
    match failure {
        Failure::Start(error) => refused(&Refusal::Start(error), context),
        Failure::Plan(why) => refused(&Refusal::None(format!("it cannot be sandboxed: {why}")), context),
        Failure::Network(why) => {
            tracing::error!("the network of a sandboxed command: {why}");
            refused(&Refusal::None(format!("its network could not be set up: {why}")), context)
        }
        Failure::Setup(said) => {
            tracing::error!("a sandbox could not be built: {said}");
            let why = "its sandbox could not be built (the server's log says more)";
            refused(&Refusal::None(why.into()), context)
        }
        Failure::Stopped => Output::error("stopped before it began"),
    }
}

fn describe(mut text: String, end: &End, context: &Context) -> Output {
    let sandboxed = context.access < AccessLevel::Full;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    let held_back = sandboxed && REFUSALS.iter().any(|word| text.contains(word));
    let mut note = |note: &str| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(note);
    };
    match end {
        End::Exited(status) => {
            match (status.code(), status.signal()) {
                (Some(0), _) => {}
                (Some(code), _) => note(&format!("[exit code {code}]")),
                (None, Some(signal)) => note(&format!("[killed by signal {signal}{}]", signal_name(signal))),
                (None, None) => note("[ended in an unknown way]"),
            }
            if held_back && !status.success() {
                note(&format!(
                    "[Sandbox] This session runs at \"{}\" access: {}. If the command needs more, ask the user for \
                     a session with full access.",
                    context.access,
                    if context.access == AccessLevel::Workspace {
                        "commands write in the workspace and in /tmp only, and hidden places are out of reach"
                    } else {
                        "commands write nothing but temporary files, and hidden places are out of reach"
                    }
                ));
            }
            if text.is_empty() {
                text.push_str("(no output)");
            }
            Output::ok(text)
        }
        End::TimedOut => {
            let mend = if sandboxed {
                "split it into shorter commands"
            } else {
                "start what runs longer with `nohup … > file 2>&1 &`"
            };
            note(&format!(
                "[timed out after {} s: the command and all it started were stopped; {mend}]",
                context.limits.shell_timeout.as_secs_f64()
            ));
            Output::error(text)
        }
        End::Stopped => {
            note("[stopped: the command and all it started were ended]");
            Output::error(text)
        }
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
