//! What the routes behind the admin cookie, and the login in front of them, answer when they refuse. One
//! [`ApiError`](crate::http::error::ApiError) carries them all.

use axum::http::StatusCode;

/// How long a client should wait before it tries to log in again while too many do: seconds.
const RETRY_AFTER_BUSY: u64 = 2;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Too many wrong passwords from this address.
    #[error("Too many attempts, try again later")]
    LockedOut {
        /// Seconds.
        retry_after: u64,
    },
    /// Too many passwords wait to be checked, from whatever address.
    #[error("too many logins at once, try again later")]
    Busy,
    /// The login has a wrong password.
    #[error("Invalid password")]
    InvalidPassword,
    /// A body longer than any password needs.
    #[error("body over 64 KiB")]
    BodyTooLarge,
    /// Another site's page made the browser send this.
    #[error("cross-site request refused")]
    CrossSite,
    /// The password comes from the environment, so it cannot be changed here.
    #[error("the password comes from HALO_PASSWORD, so it can only be changed there")]
    PasswordOfEnvironment,
    /// The old password is wrong.
    #[error("Incorrect current password")]
    IncorrectPassword,
    /// The new password is too weak; the text names the rule.
    #[error("{0}")]
    WeakPassword(&'static str),
    /// The new password is the old one.
    #[error("New password must differ from the current password")]
    SamePassword,
    /// The new password could not be written; the text names the file and why.
    #[error("the password is unchanged: {0}")]
    PasswordNotStored(String),
    /// A field has a value that it cannot have.
    #[error("{field} must be {expected}")]
    InvalidValue {
        /// The field.
        field: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
    /// An account needs a folder.
    #[error("workspacePath required")]
    WorkspacePathRequired,
    /// The account's folder is not there.
    #[error("workspace path not found")]
    WorkspacePathNotFound,
    /// A path without a folder to start from.
    #[error("absolute path required")]
    AbsolutePathRequired,
    /// A path that is relative or goes up.
    #[error("absolute path without .. required")]
    PlainPathRequired,
    /// Nothing is there, or it is hidden: the two are told in the same words.
    #[error("ENOENT: no such file or directory, {call} '{path}'")]
    NoEntry {
        /// What was tried.
        call: &'static str,
        /// As the client sent it.
        path: String,
    },
    /// A file cannot be listed.
    #[error("ENOTDIR: not a directory, {call} '{path}'")]
    NotListable {
        /// What was tried.
        call: &'static str,
        /// As the client sent it.
        path: String,
    },
    /// The operating system refuses.
    #[error("EACCES: permission denied, {call} '{path}'")]
    Denied {
        /// What was tried.
        call: &'static str,
        /// As the client sent it.
        path: String,
    },
    /// A folder has no bytes.
    #[error("not a file")]
    NotFile,
    /// The workspace's folder is not there.
    #[error("path not found")]
    PathNotFound,
    /// A workspace is a folder.
    #[error("not a directory")]
    NotDirectory,
    /// The root is no workspace.
    #[error("filesystem root cannot be a workspace")]
    RootWorkspace,
}

impl AdminError {
    /// The code in our log, and the status on the wire.
    pub fn code_and_status(&self) -> (&'static str, StatusCode) {
        match self {
            Self::LockedOut { .. } => ("login_locked_out", StatusCode::TOO_MANY_REQUESTS),
            Self::Busy => ("logins_busy", StatusCode::SERVICE_UNAVAILABLE),
            Self::InvalidPassword => ("invalid_password", StatusCode::UNAUTHORIZED),
            Self::BodyTooLarge => ("small_body_too_large", StatusCode::PAYLOAD_TOO_LARGE),
            Self::CrossSite => ("cross_site", StatusCode::FORBIDDEN),
            Self::PasswordOfEnvironment => ("password_of_environment", StatusCode::BAD_REQUEST),
            Self::IncorrectPassword => ("incorrect_password", StatusCode::UNAUTHORIZED),
            Self::WeakPassword(_) => ("weak_password", StatusCode::BAD_REQUEST),
            Self::SamePassword => ("same_password", StatusCode::BAD_REQUEST),
            Self::PasswordNotStored(_) => ("password_not_stored", StatusCode::INTERNAL_SERVER_ERROR),
            Self::InvalidValue { .. } => ("invalid_value", StatusCode::BAD_REQUEST),
            Self::WorkspacePathRequired => ("workspace_path_required", StatusCode::BAD_REQUEST),
            Self::WorkspacePathNotFound => ("workspace_path_not_found", StatusCode::BAD_REQUEST),
            Self::AbsolutePathRequired => ("absolute_path_required", StatusCode::BAD_REQUEST),
            Self::PlainPathRequired => ("plain_path_required", StatusCode::BAD_REQUEST),
            Self::NoEntry { .. } => ("no_entry", StatusCode::NOT_FOUND),
            Self::NotListable { .. } => ("not_listable", StatusCode::NOT_FOUND),
            Self::Denied { .. } => ("denied", StatusCode::FORBIDDEN),
            Self::NotFile => ("not_file", StatusCode::BAD_REQUEST),
            Self::PathNotFound => ("path_not_found", StatusCode::NOT_FOUND),
            Self::NotDirectory => ("not_directory", StatusCode::BAD_REQUEST),
            Self::RootWorkspace => ("root_workspace", StatusCode::BAD_REQUEST),
        }
    }

    /// Seconds after which asking again makes sense.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::LockedOut { retry_after } => Some(*retry_after),
            Self::Busy => Some(RETRY_AFTER_BUSY),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn the_table_of_refusals_is_the_contract() {
        let (call, path) = ("scandir", "/nope".to_owned());
        let all = [
            AdminError::LockedOut { retry_after: 900 },
            AdminError::Busy,
            AdminError::InvalidPassword,
            AdminError::BodyTooLarge,
            AdminError::CrossSite,
            AdminError::PasswordOfEnvironment,
            AdminError::IncorrectPassword,
            AdminError::WeakPassword("Password must be at least 8 characters"),
            AdminError::SamePassword,
            AdminError::PasswordNotStored("config.yaml: the disk is full".into()),
            AdminError::InvalidValue { field: "language", expected: "one of: en, zh" },
            AdminError::WorkspacePathRequired,
            AdminError::WorkspacePathNotFound,
            AdminError::AbsolutePathRequired,
            AdminError::PlainPathRequired,
            AdminError::NoEntry { call, path: path.clone() },
            AdminError::NotListable { call, path: path.clone() },
            AdminError::Denied { call, path },
            AdminError::NotFile,
            AdminError::PathNotFound,
            AdminError::NotDirectory,
            AdminError::RootWorkspace,
        ];
        let mut table = String::new();
        for error in all {
            let (code, status) = error.code_and_status();
            let retry = error.retry_after().map_or(String::new(), |s| format!(" (Retry-After: {s})"));
            writeln!(table, "{} {code}: {error}{retry}", status.as_u16()).unwrap();
        }
        insta::assert_snapshot!(table);
    }
}
