//! What a session, and what a token, may do. One ordered enum each; an unknown stored value is the lowest
//! (sessions contract, section 8).

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a session may do, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLevel {
    /// Reads all but hidden paths, writes nothing.
    ReadOnly,
    /// Also writes inside the workspace and the `writable_dirs`.
    Workspace,
    /// Whatever the process itself may do.
    Full,
}

impl AccessLevel {
    /// The name in settings, in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "readonly",
            Self::Workspace => "workspace",
            Self::Full => "full",
        }
    }

    /// Reads a stored level; anything unknown is [`AccessLevel::ReadOnly`].
    pub fn from_stored(value: &str) -> Self {
        match value {
            "full" => Self::Full,
            "workspace" => Self::Workspace,
            _ => Self::ReadOnly,
        }
    }
}

impl fmt::Display for AccessLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The level of an account (web contract, section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountLevel {
    /// Sessions of any level, any workspace, any session id.
    Full,
    /// Sessions that write inside the workspace.
    Workspace,
    /// Sessions that only read.
    ReadOnly,
    /// Acts as [`AccountLevel::ReadOnly`], and may read metrics.
    Observer,
}

impl AccountLevel {
    /// Every level, in the order that error messages list them.
    pub const ALL: [Self; 4] = [Self::Full, Self::Workspace, Self::ReadOnly, Self::Observer];

    /// The name in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Workspace => "workspace",
            Self::ReadOnly => "readonly",
            Self::Observer => "observer",
        }
    }

    /// Reads a stored level; anything unknown is [`AccountLevel::ReadOnly`].
    pub fn from_stored(value: &str) -> Self {
        Self::parse(value).unwrap_or(Self::ReadOnly)
    }

    /// Reads what a person typed: exactly one of the four names.
    pub fn parse(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == value)
    }

    /// The level of the sessions that this account talks to.
    pub const fn session_level(self) -> AccessLevel {
        match self {
            Self::Full => AccessLevel::Full,
            Self::Workspace => AccessLevel::Workspace,
            Self::ReadOnly | Self::Observer => AccessLevel::ReadOnly,
        }
    }
}

impl fmt::Display for AccountLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_level_reads_as_the_lowest() {
        for unknown in ["", "FULL", "full ", "admin"] {
            assert_eq!(AccessLevel::from_stored(unknown), AccessLevel::ReadOnly);
            assert_eq!(AccountLevel::from_stored(unknown), AccountLevel::ReadOnly);
        }
    }

    #[test]
    fn levels_are_ordered_from_least_to_most() {
        assert!(AccessLevel::ReadOnly < AccessLevel::Workspace && AccessLevel::Workspace < AccessLevel::Full);
    }
}
