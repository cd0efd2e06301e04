//! The adapter without a client: lines in, lines out, for what a well-behaved client would never send.

use super::wire::Wire;
use crate::within;
use serde_json::Value;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A running adapter and its pipes.
pub struct Raw {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    wire: Wire,
}

impl Raw {
    /// Starts the command (see [`super::command`]).
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("halo-acp can be started");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        Self { child, stdin, stdout, wire: Wire::default() }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Writes a line as it is.
    pub async fn send(&mut self, line: &str) {
        self.wire.sent(line);
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(format!("{line}\n").as_bytes()).await.expect("it reads");
    }

    /// The next line, checked.
    pub async fn receive(&mut self) -> Value {
        let line = within("a line of halo-acp", self.stdout.next_line()).await.expect("UTF-8");
        let line = line.expect("halo-acp ended");
        self.wire.received(&line);
        self.wire.assert_valid();
        serde_json::from_str(&line).expect("checked above")
    }

    /// The answer to the request with this id; what comes before it is passed over.
    pub async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive().await;
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Closes stdin; it must end within a second.
    pub async fn quit(mut self) -> ExitStatus {
        drop(self.stdin.take());
        let ended = tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await;
        ended.expect("it ends within a second").expect("it can be waited for")
    }
}
