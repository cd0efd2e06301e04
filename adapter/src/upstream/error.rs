//! What can go wrong on the way to the server, said so that a person knows what to check.

use super::sse::TooLong;

/// A request that brought no answer, or not the one that was asked for. Its text never holds the token.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or it broke while the answer was read.
    #[error("cannot reach halo at {at}: {why}")]
    Unreachable {
        /// `<scheme>://<host>:<port>`.
        at: String,
        /// The cause.
        why: String,
    },
    /// 401 or 403.
    #[error("token refused by {at} (HTTP {status}{}): check --token, and --workspace if it is given", reason(.said))]
    Refused {
        /// `<scheme>://<host>:<port>`.
        at: String,
        /// The HTTP status.
        status: u16,
        /// The server's own words, if any.
        said: String,
    },
    /// 429.
    #[error("{at} is locked for this address after too many attempts{}", wait(.seconds.as_ref()))]
    Locked {
        /// `<scheme>://<host>:<port>`.
        at: String,
        /// The server's `Retry-After`.
        seconds: Option<u64>,
    },
    /// Any other status than 200.
    #[error("{at} answered HTTP {status}{}", reason(.said))]
    Status {
        /// `<scheme>://<host>:<port>`.
        at: String,
        /// The HTTP status.
        status: u16,
        /// The server's own words, if any.
        said: String,
    },
    /// A body that is not what the contract says.
    #[error("{at} answered {what}; is it a halo server, or is a gateway in front of it?")]
    Strange {
        /// `<scheme>://<host>:<port>`.
        at: String,
        /// What came.
        what: String,
    },
    /// A frame at the limit.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl Error {
    /// The HTTP status, where the server answered with one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Status { status, .. } => Some(*status),
            Self::Locked { .. } => Some(429),
            _ => None,
        }
    }

    /// The server's own words of an error status.
    pub fn said(&self) -> &str {
        match self {
            Self::Refused { said, .. } | Self::Status { said, .. } => said,
            _ => "",
        }
    }
}

fn reason(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

fn wait(seconds: Option<&u64>) -> String {
    match seconds {
        Some(seconds) => format!("; try again in {seconds} s"),
        None => "; try again later".to_owned(),
    }
}
