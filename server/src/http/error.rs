//! What a surface answers when it refuses: one enum with a code for the log, a status and a message for the
//! client. The body is always `{"error": message}`. Internal failures are logged with an id; only the id goes out.

use super::admin::error::AdminError;
use crate::session::{SessionError, WorkspaceError};
use crate::store::StoreError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::Display;

/// How long a client should wait before it asks a server again that shuts down: seconds.
const RETRY_AFTER_SHUTDOWN: u64 = 5;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// Too many bad tokens from this address.
    #[error("too many failed attempts, try again later")]
    LockedOut {
        /// Seconds.
        retry_after: u64,
    },
    /// No token was sent.
    #[error("token required")]
    TokenRequired,
    /// The token is unknown, or its account disabled.
    #[error("invalid token")]
    InvalidToken,
    /// Nothing here for someone without the admin cookie.
    #[error("Unauthorized")]
    Unauthorized,
    /// The token is for one workspace alone, and this is about all of them.
    #[error("global-scope token (full or observer) required")]
    GlobalTokenRequired,
    /// Another workspace was named without a `full` token.
    #[error("workspace override requires a full-access token")]
    WorkspaceOverride,
    /// The workspace is relative, missing, or no folder.
    #[error("workspace not found")]
    WorkspaceNotFound,
    /// The session id has a wrong shape.
    #[error("invalid session id")]
    InvalidSessionId,
    /// The session belongs to someone else.
    #[error("session not owned by this token")]
    NotOwned,
    /// There is no such session.
    #[error("session not found")]
    SessionNotFound,
    /// `agentId` names no agent that may be used.
    #[error("agent not available")]
    AgentNotAvailable,
    /// The agent's files have a mistake; the text names the place.
    #[error("agent not available: {0}")]
    AgentBroken(String),
    /// A chat without anything to say.
    #[error("message or images required")]
    MessageRequired,
    /// The body of another route is no JSON object.
    #[error("body must be a JSON object")]
    InvalidBody,
    /// A field has the wrong JSON type.
    #[error("{field} must be {expected}")]
    WrongType {
        /// The field as the client wrote it.
        field: String,
        /// What belongs there, with its article.
        expected: &'static str,
    },
    /// An image cannot be used.
    #[error("images[{index}]: {reason}")]
    InvalidImage {
        /// Its place, from 0.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More images than one message may carry.
    #[error("images: at most {max} in one message")]
    TooManyImages {
        /// The limit.
        max: usize,
    },
    /// What came with the message could not be saved; the text names the place and says why.
    #[error("an upload could not be saved: {0}")]
    UploadNotSaved(String),
    /// A body of a type that is not JSON.
    #[error("Content-Type must be application/json")]
    UnsupportedMediaType,
    /// The body is longer than the limit.
    #[error("body over 24 MiB")]
    BodyTooLarge,
    /// The body ended early or was badly framed.
    #[error("the body could not be read")]
    BodyUnreadable,
    /// Nothing came of the body for too long.
    #[error("the body stopped coming")]
    BodyTimeout,
    /// `cursor` is not digits only.
    #[error("Invalid cursor")]
    InvalidCursor,
    /// `since` is not digits only.
    #[error("Invalid since")]
    InvalidSince,
    /// `limit` is not a number from 1 to 1000.
    #[error("Invalid limit")]
    InvalidLimit,
    /// `before` is no id of a row.
    #[error("Invalid before")]
    InvalidBefore,
    /// No file is named.
    #[error("path required")]
    PathRequired,
    /// The path leaves the workspace, by its text or by a link.
    #[error("path traversal not allowed")]
    PathTraversal,
    /// What halo itself keeps there, or what the operating system does not let us read.
    #[error("path is not accessible")]
    PathNotAccessible,
    /// There is no such file.
    #[error("file not found")]
    FileNotFound,
    /// The path is that of a folder.
    #[error("cannot serve directory")]
    CannotServeDirectory,
    /// FIFO, socket or device.
    #[error("not a regular file")]
    NotRegularFile,
    /// Nothing of the file is in the range that was asked for.
    #[error("range not satisfiable")]
    RangeNotSatisfiable {
        /// Of the file, in bytes.
        size: u64,
    },
    /// A known path does not know this method.
    #[error("method not allowed")]
    MethodNotAllowed,
    /// Nothing here.
    #[error("not found")]
    NotFound,
    /// The workspace cannot be opened as it is; the text names the file and what to do.
    #[error("workspace unusable: {0}")]
    WorkspaceUnusable(String),
    /// No room; the text says where, as far as it is known.
    #[error("{0}")]
    DiskFull(String),
    /// Another process owns the workspace; the text names it.
    #[error("{0}")]
    NotOwner(String),
    /// Nothing can be written in the workspace, so nothing can run there; the text says why.
    #[error("{0}")]
    WorkspaceReadOnly(String),
    /// The server is going down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// A refusal of the login or of a route behind the admin cookie.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Something of ours failed; the log says what, under this id.
    #[error("internal error (id {id})")]
    Internal {
        /// What to search the log for.
        id: String,
    },
}

impl ApiError {
    /// Logs what failed and gives the answer that names only the log's id.
    pub fn internal(what: impl Display) -> Self {
        let id = format!("{:08x}", rand::random::<u32>());
        tracing::error!(id, "request failed: {what}");
        Self::Internal { id }
    }

    /// The code in our log, and the status on the wire.
    pub fn code_and_status(&self) -> (&'static str, StatusCode) {
        match self {
            Self::LockedOut { .. } => ("locked_out", StatusCode::TOO_MANY_REQUESTS),
            Self::TokenRequired => ("token_required", StatusCode::UNAUTHORIZED),
            Self::InvalidToken => ("invalid_token", StatusCode::UNAUTHORIZED),
            Self::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED),
            Self::GlobalTokenRequired => ("global_token_required", StatusCode::FORBIDDEN),
            Self::WorkspaceOverride => ("workspace_override", StatusCode::FORBIDDEN),
            Self::WorkspaceNotFound => ("workspace_not_found", StatusCode::NOT_FOUND),
            Self::InvalidSessionId => ("invalid_session_id", StatusCode::BAD_REQUEST),
            Self::NotOwned => ("not_owned", StatusCode::FORBIDDEN),
            Self::SessionNotFound => ("session_not_found", StatusCode::NOT_FOUND),
            Self::AgentNotAvailable => ("agent_not_available", StatusCode::BAD_REQUEST),
            Self::AgentBroken(_) => ("agent_broken", StatusCode::BAD_REQUEST),
            Self::MessageRequired => ("message_required", StatusCode::BAD_REQUEST),
            Self::InvalidBody => ("invalid_body", StatusCode::BAD_REQUEST),
            Self::WrongType { .. } => ("wrong_type", StatusCode::BAD_REQUEST),
            Self::InvalidImage { .. } => ("invalid_image", StatusCode::BAD_REQUEST),
            Self::TooManyImages { .. } => ("too_many_images", StatusCode::BAD_REQUEST),
            Self::UploadNotSaved(_) => ("upload_not_saved", StatusCode::INTERNAL_SERVER_ERROR),
            Self::UnsupportedMediaType => ("unsupported_media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Self::BodyTooLarge => ("body_too_large", StatusCode::PAYLOAD_TOO_LARGE),
            Self::BodyUnreadable => ("body_unreadable", StatusCode::BAD_REQUEST),
            Self::BodyTimeout => ("body_timeout", StatusCode::REQUEST_TIMEOUT),
            Self::InvalidCursor => ("invalid_cursor", StatusCode::BAD_REQUEST),
            Self::InvalidSince => ("invalid_since", StatusCode::BAD_REQUEST),
            Self::InvalidLimit => ("invalid_limit", StatusCode::BAD_REQUEST),
            Self::InvalidBefore => ("invalid_before", StatusCode::BAD_REQUEST),
            Self::PathRequired => ("path_required", StatusCode::BAD_REQUEST),
            Self::PathTraversal => ("path_traversal", StatusCode::FORBIDDEN),
            Self::PathNotAccessible => ("path_not_accessible", StatusCode::FORBIDDEN),
            Self::FileNotFound => ("file_not_found", StatusCode::NOT_FOUND),
            Self::CannotServeDirectory => ("cannot_serve_directory", StatusCode::BAD_REQUEST),
            Self::NotRegularFile => ("not_regular_file", StatusCode::BAD_REQUEST),
            Self::RangeNotSatisfiable { .. } => ("range_not_satisfiable", StatusCode::RANGE_NOT_SATISFIABLE),
            Self::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED),
            Self::NotFound => ("not_found", StatusCode::NOT_FOUND),
            Self::WorkspaceUnusable(_) => ("workspace_unusable", StatusCode::INTERNAL_SERVER_ERROR),
            Self::DiskFull(_) => ("disk_full", StatusCode::INSUFFICIENT_STORAGE),
            Self::NotOwner(_) => ("not_owner", StatusCode::SERVICE_UNAVAILABLE),
            Self::WorkspaceReadOnly(_) => ("workspace_read_only", StatusCode::SERVICE_UNAVAILABLE),
            Self::ShuttingDown => ("shutting_down", StatusCode::SERVICE_UNAVAILABLE),
            Self::Admin(error) => error.code_and_status(),
            Self::Internal { .. } => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// Seconds after which asking again makes sense.
    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::LockedOut { retry_after } => Some(*retry_after),
            Self::ShuttingDown => Some(RETRY_AFTER_SHUTDOWN),
            Self::Admin(error) => error.retry_after(),
            _ => None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (code, status) = self.code_and_status();
        tracing::debug!(code, status = status.as_u16(), "refused");
        let body = Json(serde_json::json!({ "error": self.to_string() }));
        let mut response = (status, body).into_response();
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::RangeNotSatisfiable { size } = self
            && let Ok(range) = HeaderValue::try_from(format!("bytes */{size}"))
        {
            response.headers_mut().insert(header::CONTENT_RANGE, range);
        }
        response
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::AgentNotAvailable => Self::AgentNotAvailable,
            SessionError::AgentBroken(text) => Self::AgentBroken(text),
            SessionError::NotFound => Self::SessionNotFound,
            SessionError::NotOwner(text) => Self::NotOwner(text),
            // Only agents meet a full queue, and only a removal a session that does not come to rest.
            error @ (SessionError::QueueFull { .. } | SessionError::Stopping | SessionError::Busy) => {
                Self::internal(error)
            }
            SessionError::ReadOnly(text) => Self::WorkspaceReadOnly(text),
            SessionError::ShuttingDown => Self::ShuttingDown,
            SessionError::DiskFull => Self::DiskFull(error.to_string()),
            SessionError::Internal(id) => Self::Internal { id },
        }
    }
}

impl From<WorkspaceError> for ApiError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::NotFound => Self::WorkspaceNotFound,
            WorkspaceError::ShuttingDown => Self::ShuttingDown,
            WorkspaceError::Unusable(text) => {
                tracing::error!("a workspace is unusable: {text}");
                Self::WorkspaceUnusable(text)
            }
            WorkspaceError::DiskFull(text) => {
                tracing::error!("a workspace cannot be opened: {text}");
                Self::DiskFull(text)
            }
            WorkspaceError::Internal(id) => Self::Internal { id },
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::ShuttingDown,
            StoreError::Full => Self::DiskFull(error.to_string()),
            other => Self::internal(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn the_table_of_refusals_is_the_contract() {
        let all = [
            ApiError::LockedOut { retry_after: 900 },
            ApiError::TokenRequired,
            ApiError::InvalidToken,
            ApiError::Unauthorized,
            ApiError::GlobalTokenRequired,
            ApiError::WorkspaceOverride,
            ApiError::WorkspaceNotFound,
            ApiError::InvalidSessionId,
            ApiError::NotOwned,
            ApiError::SessionNotFound,
            ApiError::AgentNotAvailable,
            ApiError::AgentBroken("mine/agent.yaml:5:14: not a number".into()),
            ApiError::MessageRequired,
            ApiError::InvalidBody,
            ApiError::WrongType { field: "sessionId".into(), expected: "a string" },
            ApiError::InvalidImage { index: 0, reason: "data is not base64" },
            ApiError::TooManyImages { max: 20 },
            ApiError::UploadNotSaved("/ws/.halo/assets: the disk is full".into()),
            ApiError::UnsupportedMediaType,
            ApiError::BodyTooLarge,
            ApiError::BodyUnreadable,
            ApiError::BodyTimeout,
            ApiError::InvalidCursor,
            ApiError::InvalidSince,
            ApiError::InvalidLimit,
            ApiError::InvalidBefore,
            ApiError::PathRequired,
            ApiError::PathTraversal,
            ApiError::PathNotAccessible,
            ApiError::FileNotFound,
            ApiError::CannotServeDirectory,
            ApiError::NotRegularFile,
            ApiError::RangeNotSatisfiable { size: 10 },
            ApiError::MethodNotAllowed,
            ApiError::NotFound,
            ApiError::WorkspaceUnusable("/ws/.halo/halo.db: made by a newer halo".into()),
            ApiError::DiskFull("the disk is full: free some space, then try again".into()),
            ApiError::NotOwner("workspace in use by process 7".into()),
            ApiError::WorkspaceReadOnly("/ws/.halo: the file system is read-only".into()),
            ApiError::ShuttingDown,
            ApiError::Internal { id: "0badcafe".into() },
        ];
        let mut table = String::new();
        for error in all {
            let (code, status) = error.code_and_status();
            let retry = error.retry_after().map_or(String::new(), |s| format!(" (Retry-After: {s})"));
            writeln!(table, "{} {code}: {error}{retry}", status.as_u16()).unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn an_internal_failure_tells_the_client_its_id_and_nothing_else() {
        let error = ApiError::internal("disk /secret/path is full");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.to_string().starts_with("internal error (id "));
    }
}
