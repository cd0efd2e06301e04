//! Logs: to stderr for whoever watches, and to `global/logs/server.log`, which is moved aside at a size and
//! kept a number of times. Tokens in URLs never reach either. A log that cannot be written stops nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Starts logging for the whole process; the first call counts. Without a file, to stderr alone.
pub fn start(level: &str, file: Option<RotatingFile>) {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::WARN);
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let stderr = fmt::layer().compact().with_ansi(colours).with_writer(Redacted(Stderr));
    let file = file.map(|file| {
        fmt::layer().compact().with_ansi(false).with_writer(Redacted(Shared(Arc::new(Mutex::new(file)))))
    });
    // other crates are of interest only when something goes wrong in them
    let filter = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("halo_server", level);
    let layers = stderr.and_then(file).with_filter(filter);
    if let Err(error) = tracing_subscriber::registry().with(layers).try_init() {
        tracing::debug!("logging had been started before: {error}");
    }
}

/// A file that is moved aside when it is full: `server.log` becomes `server.log.1`, and so on; the oldest goes.
#[derive(Debug)]
pub struct RotatingFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_bytes: u64,
    max_files: usize,
}

impl RotatingFile {
    /// Opens the file for appending, and makes it (0600) and its folder (0700) where they are missing.
    pub fn open(path: &Path, max_bytes: u64, max_files: usize) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, max_bytes, max_files: max_files.max(1) })
    }

    fn numbered(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.max_files.saturating_sub(1)).rev() {
            match std::fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.max_files == 1 {
            self.file.set_len(0)?;
        } else {
            std::fs::rename(&self.path, self.numbered(1))?;
            self.file = append(&self.path)?;
        }
        self.size = 0;
        Ok(())
    }
}

impl Write for RotatingFile {
    /// Writes one whole line; a file that cannot be moved aside grows on.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.size > 0 && self.size + line.len() as u64 > self.max_bytes {
            let _ = self.rotate();
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Takes the values of `?token=` and `&token=` out of every line before it is written.
struct Redacted<M>(M);

struct RedactedWriter<W>(W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Redacted<M> {
    type Writer = RedactedWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactedWriter(self.0.make_writer())
    }
}

impl<W: Write> Write for RedactedWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match redact(&String::from_utf8_lossy(line)) {
            Some(redacted) => self.0.write_all(redacted.as_bytes())?,
            None => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The text without tokens; `None` when it holds none.
fn redact(text: &str) -> Option<String> {
    const END: [char; 5] = ['"', '\'', '&', ' ', '\n'];
    let mut redacted = String::new();
    let mut rest = text;
    while let Some(at) = ["?token=", "&token="].iter().filter_map(|key| rest.find(key)).min() {
        let value = at + "?token=".len();
        redacted.push_str(&rest[..value]);
        redacted.push_str("<redacted>");
        rest = &rest[value..];
        rest = &rest[rest.find(END).unwrap_or(rest.len())..];
    }
    (!redacted.is_empty()).then(|| redacted + rest)
}

struct Stderr;

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = io::Stderr;

    fn make_writer(&'a self) -> io::Stderr {
        io::stderr()
    }
}

#[derive(Clone)]
struct Shared(Arc<Mutex<RotatingFile>>);

impl Write for Shared {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Shared {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("GET /x?token=abc&path=y", Some("GET /x?token=<redacted>&path=y"))]
    #[case("\"/x?a=1&token=abc\" 200", Some("\"/x?a=1&token=<redacted>\" 200"))]
    #[case("?token=a ?token=b\n", Some("?token=<redacted> ?token=<redacted>\n"))]
    #[case("the token=abc of a page", None)]
    fn tokens_in_urls_never_reach_a_log(#[case] line: &str, #[case] redacted: Option<&str>) {
        assert_eq!(redact(line).as_deref(), redacted);
    }

    #[test]
    fn a_full_log_is_moved_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/server.log");
        let mut log = RotatingFile::open(&path, 10, 3).unwrap();
        for line in ["one----\n", "two----\n", "three--\n", "four---\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join("logs").join(name)).ok();
        assert_eq!(read("server.log").as_deref(), Some("four---\n"));
        assert_eq!(read("server.log.1").as_deref(), Some("three--\n"));
        assert_eq!(read("server.log.2").as_deref(), Some("two----\n"));
        assert_eq!(read("server.log.3"), None);
    }

    #[test]
    fn a_log_goes_on_where_the_last_start_left_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.log");
        RotatingFile::open(&path, 100, 1).unwrap().write_all(b"one\n").unwrap();
        RotatingFile::open(&path, 100, 1).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }
}
