//! `shell_exec`: runs a command line in a session of its own and gives what it prints. Returns when the shell
//! ends, also when a child in the background still holds the pipe; timeout and stop end the shell and all it has
//! started. The only brake on the command itself is [`super::rm_guard`].

#[cfg(test)]
mod tests;

use super::args::Args;
use super::processes::{Family, MARK, new_mark};
use super::rm_guard::RmGuard;
use super::shell_output::HeadAndTail;
use super::{Context, Output, Tool, shell_params};
use crate::access::AccessLevel;
use crate::model::ToolSpec;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
use rustix::process::Pid;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// How long output is awaited after the shell has ended, when something else holds the pipe.
const DRAIN: Duration = Duration::from_millis(100);
/// How long a killed shell may take to be collected.
const COLLECT: Duration = Duration::from_millis(200);
/// Parts of names of environment variables that hold secrets.
const SECRET_NAMES: [&str; 8] =
    ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY"];

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
pub struct ShellExec;

impl Tool for ShellExec {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "shell_exec".into(),
            description: "Runs a command line in the workspace (bash, or sh where there is no bash) and gives what \
                          it prints. It is stopped after the server's time limit (120 s unless set otherwise): \
                          start what runs longer with `nohup … > file 2>&1 &`. Nothing can be typed in: standard \
                          input is empty. Variables of the environment that look like secrets (names with SECRET, \
                          TOKEN, PASSWORD, API_KEY and the like) are not passed on."
                .into(),
            parameters: json!({
                "type": "object",
                "properties": {"command": {"type": "string", "description": "The command line"}},
                "required": ["command"],
            }),
        }
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
    if context.access < AccessLevel::Full {
        return Err(format!(
            "[Sandbox] This session runs at \"{}\" access: shell_exec is refused, because this server has no \
             sandbox for commands; use the file tools, or ask the user for a session with full access",
            context.access
        ));
    }
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
    let (mut child, family, mut pipe) = match start(command, context) {
        Ok(started) => started,
        Err(error) => {
            let advice = if error.kind() == io::ErrorKind::ArgumentListTooLong {
                ": the command is too long; write it to a file with file_write and run that"
            } else if !context.workspace.is_dir() {
                ": the workspace folder is gone"
            } else {
                ""
            };
            return Output::error(format!("the command could not be started: {error}{advice}"));
        }
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
            status = child.wait() => match status {
                Ok(status) => break End::Exited(status),
                Err(error) => return Output::error(format!("the command was lost: {error}")),
            },
            read = pipe.read(&mut buffer), if open => match read {
                Ok(size) if size > 0 => output.push(&buffer[..size]),
                _ => open = false,
            },
        }
    };
    if let End::Exited(_) = end {
        family.release();
    } else {
        // If the runtime no longer takes work, the family is dropped, which kills it too.
        let _ = tokio::task::spawn_blocking(move || family.stop()).await;
        // Dead, but still ours to collect. If it hangs in the kernel, it is collected later.
        let _ = tokio::time::timeout(COLLECT, child.wait()).await;
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
    describe(&output.into_text(), &end, context.limits.shell_timeout)
}

fn start(command: &str, context: &Context) -> io::Result<(Box<dyn ChildWrapper>, Family, Receiver)> {
    // One pipe for both, so that the order of what is printed is kept.
    let (reader, writer) = io::pipe()?;
    let errors = writer.try_clone()?;
    let mark = new_mark();
    let mut wrap = CommandWrap::with_new(&*SHELL, |shell| {
        shell.arg("-c").arg(command);
        shell.current_dir(&context.workspace);
        shell.stdin(Stdio::null()).stdout(Stdio::from(writer)).stderr(Stdio::from(errors));
        for (name, _) in std::env::vars_os() {
            if is_secret(&name) {
                shell.env_remove(name);
            }
        }
        shell.env("TERM", "dumb").env("PAGER", "cat").env("GIT_PAGER", "cat").env("GIT_TERMINAL_PROMPT", "0");
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
    Ok((child, family, Receiver::from_owned_fd(OwnedFd::from(reader))?))
}

fn is_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

fn describe(output: &str, end: &End, timeout: Duration) -> Output {
    let mut text = output.trim_end_matches(['\r', '\n']).to_owned();
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
            if text.is_empty() {
                text.push_str("(no output)");
            }
            Output::ok(text)
        }
        End::TimedOut => {
            note(&format!(
                "[timed out after {} s: the command and all it started were stopped; start what runs longer with \
                 `nohup … > file 2>&1 &`]",
                timeout.as_secs_f64()
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
