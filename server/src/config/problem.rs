//! What is wrong with a configuration, and where: one line each, for people.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// The server runs, but not as the file's author thinks.
    Warning,
    /// The file cannot be used.
    Error,
}

/// One finding. Its text never holds the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// `<file>:<line>:<column>`, the name of an environment variable, or a flag.
    pub place: String,
    /// What is wrong, and what to do.
    pub text: String,
}

impl Problem {
    /// A finding at a line and column (both from 1) of a file.
    pub fn at(severity: Severity, file: &Path, (line, column): (u64, u64), text: impl Into<String>) -> Self {
        Self { severity, place: format!("{}:{line}:{column}", file.display()), text: text.into() }
    }

    /// A finding about something that has no lines.
    pub fn of(severity: Severity, place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { severity, place: place.into(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// The problems that keep a configuration from being used; at least one of them is an error.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Unusable(pub Vec<Problem>);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut errors = self.0.iter().filter(|problem| problem.severity == Severity::Error);
        let Some(first) = errors.next() else { return f.write_str("the configuration cannot be used") };
        write!(f, "{first}")?;
        match errors.count() {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more error: see halo config check)"),
            more => write!(f, " (and {more} more errors: see halo config check)"),
        }
    }
}

/// What the operating system said, without the error number, and in plainer words where it has some of its own.
pub fn os_reason(error: &std::io::Error) -> String {
    if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        return "the disk is full: free some space, then try again".into();
    }
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
