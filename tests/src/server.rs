//! The real server as a process of its own: started on a free port, killed, stopped, started again. Whatever it
//! said on stderr is shown when a test fails, and nothing of it is left when it is dropped.

use crate::place::Place;
use crate::web::Client;
use crate::within;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// The most of stderr that is kept, in bytes.
const MAX_STDERR: usize = 4 << 20;

/// How the server is started.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// `--host`, for tests whose bad tokens must lock out nobody else.
    pub host: Option<String>,
    /// More arguments.
    pub args: Vec<String>,
    /// More of the environment.
    pub env: Vec<(String, String)>,
    /// A program with arguments in front, such as a tracer.
    pub wrapper: Vec<OsString>,
}

impl Launch {
    /// On an address of its own.
    pub fn on(host: &str) -> Self {
        Self { host: Some(host.to_owned()), ..Self::default() }
    }
}

/// A server that runs, or was killed.
pub struct Server {
    place: Arc<Place>,
    launch: Launch,
    running: Option<Running>,
    url: String,
    listened_after: Duration,
}

struct Running {
    child: Child,
    pid: Pid,
    stderr: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Server {
    /// Starts on a place with a used home and an agent that answers at once.
    pub async fn start() -> Self {
        Self::launch(Place::new(), Launch::default()).await
    }

    /// Starts in this place; panics unless it listens within [`crate::PATIENCE`].
    pub async fn launch(place: Place, launch: Launch) -> Self {
        let mut server = Self {
            place: Arc::new(place),
            launch,
            running: None,
            url: String::new(),
            listened_after: Duration::ZERO,
        };
        server.restart().await;
        server
    }

    /// Starts it again after [`Self::kill9`] or [`Self::stop`], in the same place.
    pub async fn restart(&mut self) {
        assert!(self.running.is_none(), "it still runs");
        let begin = Instant::now();
        let (mut child, stderr, reader) = spawn(&self.place, &self.launch);
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let line = within("the server listens", stdout.next_line()).await.expect("stdout can be read");
        self.listened_after = begin.elapsed();
        let Some(line) = line else {
            let status = within("the server ends", child.wait()).await;
            panic!("the server did not start ({status:?}): {}", text(&stderr));
        };
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("no such line: {line}"));
        url.clone_into(&mut self.url);
        let pid = Pid::from_raw(child.id().expect("it runs") as i32).expect("a process id");
        self.running = Some(Running { child, pid, stderr, reader });
    }

    /// The place it runs in.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Its workspace.
    pub fn workspace(&self) -> std::path::PathBuf {
        self.place.workspace()
    }

    /// `http://<address>`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How long the last start took to say that it listens.
    pub fn listened_after(&self) -> Duration {
        self.listened_after
    }

    /// Host and port.
    pub fn address(&self) -> (String, u16) {
        let authority = self.url.strip_prefix("http://").expect("http");
        let (host, port) = authority.rsplit_once(':').expect("a port");
        (host.to_owned(), port.parse().expect("a port"))
    }

    /// The process id of what was started (the tracer's, where there is one).
    pub fn pid(&self) -> u32 {
        self.running().pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// What it said on stderr so far.
    pub fn stderr(&self) -> String {
        text(&self.running().stderr)
    }

    /// Waits until stderr contains `part`.
    pub async fn stderr_with(&self, part: &str) -> String {
        let look = async {
            loop {
                let text = self.stderr();
                if text.contains(part) {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(&format!("{part:?} on stderr"), look).await
    }

    /// A client with a new token of this level.
    pub async fn client(&self, access: &str) -> Client {
        Client::new(&self.url, Some(&self.place.token(access).await))
    }

    /// `kill -9`, and waits for the end.
    pub async fn kill9(&mut self) {
        let mut running = self.running.take().expect("it runs");
        kill_process_group(running.pid, Signal::KILL).expect("it can be killed");
        within("the killed server ends", running.child.wait()).await.expect("it can be waited for");
        running.reader.abort();
    }

    /// SIGTERM, and waits for the end; answers how it ended and what it said on stderr.
    pub async fn stop(&mut self) -> (ExitStatus, String) {
        let mut running = self.running.take().expect("it runs");
        kill_process(running.pid, Signal::TERM).expect("it can be told");
        let status = within("the server ends", running.child.wait()).await.expect("it can be waited for");
        // A process that it left behind may hold the pipe; the test asserts on what is there then.
        let _ = tokio::time::timeout(Duration::from_secs(2), &mut running.reader).await;
        running.reader.abort();
        (status, text(&running.stderr))
    }

    /// Waits for its end, which something else brings about.
    pub async fn wait(&mut self) -> ExitStatus {
        let mut running = self.running.take().expect("it runs");
        let status = within("the server ends", running.child.wait()).await.expect("it can be waited for");
        running.reader.abort();
        status
    }

    /// The place alone, once nothing runs there.
    pub fn into_place(self) -> Place {
        assert!(self.running.is_none(), "it still runs");
        let place = Arc::clone(&self.place);
        drop(self);
        Arc::into_inner(place).expect("nobody else holds the place")
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if std::thread::panicking() {
            eprintln!("--- stderr of the server ---\n{}", text(&running.stderr));
        }
        // The group may have ended by itself.
        let _ = kill_process_group(running.pid, Signal::KILL);
        running.reader.abort();
    }
}

fn spawn(place: &Place, launch: &Launch) -> (Child, Arc<Mutex<String>>, JoinHandle<()>) {
    let halo = &crate::binaries::binaries().halo;
    let mut command = match launch.wrapper.split_first() {
        None => Command::new(halo),
        Some((wrapper, args)) => {
            let mut command = Command::new(wrapper);
            command.args(args).arg(halo);
            command
        }
    };
    command.args(["server", "--port", "0"]);
    if let Some(host) = &launch.host {
        command.args(["--host", host]);
    }
    command.args(&launch.args);
    place.settle(&mut command);
    command.envs(launch.env.iter().map(|(name, value)| (name, value)));
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", Path::new(halo).display()));
    let kept = Arc::new(Mutex::new(String::new()));
    let reader = tokio::spawn(keep(child.stderr.take().expect("stderr is piped"), Arc::clone(&kept)));
    (child, kept, reader)
}

/// Keeps what comes, line by line, up to [`MAX_STDERR`].
pub(crate) async fn keep(from: impl AsyncRead + Unpin, kept: Arc<Mutex<String>>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_STDERR {
            kept.push_str(&String::from_utf8_lossy(&line));
        }
        line.clear();
    }
}

pub(crate) fn text(kept: &Mutex<String>) -> String {
    kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
