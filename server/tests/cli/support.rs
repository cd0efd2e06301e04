//! A home of its own for each test, and the binary run on it.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A home and a user of its own.
pub struct Sandbox(pub tempfile::TempDir);

impl Sandbox {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ws")).unwrap();
        Self(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.home().join("secrets").join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap()).unwrap();
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.home().join("secrets").join(name)).unwrap()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halo"));
        command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.0.path()).env("HALO_HOME", self.home());
        command.current_dir(self.path("ws")).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }

    pub fn serve(&self, args: &[&str]) -> Server {
        Server::start(self.command(&[&["server", "--port", "0"], args].concat()))
    }
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// Asserts success; answers stdout without the last line break.
    #[track_caller]
    pub fn good(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout.trim_end()
    }

    /// Asserts exit 1, one line on stderr and nothing on stdout; answers the line without the word in front.
    #[track_caller]
    pub fn failed(&self) -> &str {
        assert_eq!((self.code, self.stdout.as_str()), (Some(1), ""), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        self.stderr.trim_end().strip_prefix("error: ").expect("a line that begins with `error: `")
    }
}

/// A running server; killed when dropped.
pub struct Server {
    pub child: Child,
    pub url: String,
    stderr: Receiver<String>,
}

impl Server {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, stderr) = channel();
        let pipe = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || pipe.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(url) = line.trim_end().strip_prefix("listening on ") else {
            panic!("no listening line but {line:?}, stderr: {:?}", stderr.iter().collect::<Vec<_>>());
        };
        Self { url: url.to_owned(), child, stderr }
    }

    pub fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap()
    }

    /// Waits for a line of stderr that holds the text; answers it.
    #[track_caller]
    pub fn line_with(&self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while let Ok(line) = self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with {text:?}, but {seen:?}");
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Ends the server as Ctrl-C does; answers all that it wrote to stderr since the last look.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.signal("INT");
        let status = self.child.wait().unwrap();
        (status, self.stderr.iter().map(|line| line + "\n").collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
