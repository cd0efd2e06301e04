//! What a request names and whether it may: overrides from query, headers and body, and checks 4 to 6 of the
//! order of checks (web contract, section 1).

use super::body::Fields;
use crate::access::AccountLevel;
use crate::http::auth::token::Caller;
use crate::http::error::ApiError;
use crate::session::Engine;
use crate::session::ids::SessionId;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// The parameters of a query string. Of a repeated one the first counts; an empty one counts as absent.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Those of the request.
    pub fn of(parts: &Parts) -> Self {
        let text = parts.uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The value, where it is there and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(parts))
    }
}

/// What the request names instead of what its token stands for. Nothing of it is checked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// A workspace folder.
    pub workspace: Option<String>,
    /// A session.
    pub session_id: Option<String>,
    /// The agent of a session that this request creates.
    pub agent_id: Option<String>,
}

impl Overrides {
    /// The names of the body fields that [`Overrides::of_fields`] reads.
    pub const FIELDS: &'static [&'static str] = &["workspace", "sessionId", "agentId"];

    /// Those in a body.
    pub fn of_fields(fields: &Fields<'_>) -> Result<Self, ApiError> {
        Ok(Self {
            workspace: fields.text("workspace")?,
            session_id: fields.text("sessionId")?,
            agent_id: fields.text("agentId")?,
        })
    }

    /// These, and over them the `later` ones. An empty text names nothing.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        let over =
            |earlier: Option<String>, later: Option<String>| later.filter(|t| !t.is_empty()).or(earlier);
        Self {
            workspace: over(self.workspace, later.workspace),
            session_id: over(self.session_id, later.session_id),
            agent_id: over(self.agent_id, later.agent_id),
        }
    }
}

/// Query, then headers.
impl<S: Send + Sync> FromRequestParts<S> for Overrides {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = Query::of(parts);
        let query = |name: &str| query.get(name).map(str::to_owned);
        let header = |name: &str| {
            // Bytes that are no text name nothing that exists; the checks say so.
            parts.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let from_query = Self {
            workspace: query("workspace"),
            session_id: query("sessionId"),
            agent_id: query("agentId"),
        };
        let from_headers = Self {
            workspace: header("x-workspace"),
            session_id: header("x-session-id"),
            agent_id: header("x-agent-id"),
        };
        Ok(from_query.then(from_headers))
    }
}

/// What a request is about, after checks 4 to 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The workspace folder; its real path, except that the token's own is as stored.
    pub workspace: PathBuf,
    /// The session, where one is named.
    pub session: Option<SessionId>,
}

impl Target {
    /// Checks 4, 5 and 6, in this order.
    pub async fn of(engine: &Engine, caller: &Caller, named: &Overrides) -> Result<Self, ApiError> {
        let workspace = workspace(caller, named).await?;
        let Some(text) = &named.session_id else { return Ok(Self { workspace, session: None }) };
        let session: SessionId = text.parse().map_err(|_| ApiError::InvalidSessionId)?;
        if !caller.owns(&session) && !judges_own(engine, &workspace, caller, &session).await? {
            return Err(ApiError::NotOwned);
        }
        Ok(Self { workspace, session: Some(session) })
    }
}

/// Whether this is the session that judges the goal of one of the account's own sessions.
async fn judges_own(
    engine: &Engine,
    folder: &Path,
    caller: &Caller,
    session: &SessionId,
) -> Result<bool, ApiError> {
    if !session.as_str().starts_with("goal_") {
        return Ok(false);
    }
    let Some(workspace) = engine.existing_workspace(folder).await? else { return Ok(false) };
    let worker = workspace.goal_worker(session).await?;
    Ok(worker.is_some_and(|worker| worker.starts_with(&caller.session_prefix())))
}

/// Check 4, for routes that take no session.
pub async fn workspace(caller: &Caller, named: &Overrides) -> Result<PathBuf, ApiError> {
    let own = &caller.workspace;
    let Some(named) = named.workspace.as_deref().map(Path::new) else { return Ok(own.clone()) };
    if named == own {
        return Ok(own.clone());
    }
    let real = if named.is_absolute() { tokio::fs::canonicalize(named).await.ok() } else { None };
    if let Some(real) = &real
        && tokio::fs::canonicalize(own).await.is_ok_and(|own| own == *real)
    {
        return Ok(own.clone());
    }
    if caller.level != AccountLevel::Full {
        return Err(ApiError::WorkspaceOverride);
    }
    let real = real.ok_or(ApiError::WorkspaceNotFound)?;
    let is_folder = tokio::fs::metadata(&real).await.is_ok_and(|meta| meta.is_dir());
    if is_folder { Ok(real) } else { Err(ApiError::WorkspaceNotFound) }
}

/// A number of digits alone; one that is too large for us is as good as the largest.
pub fn digits(text: &str) -> Option<i64> {
    let all_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| text.parse().unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::engine;
    use crate::store::accounts::Language;
    use axum::http::Request;
    use rstest::rstest;
    use tempfile::TempDir;

    fn caller(level: AccountLevel, workspace: &Path) -> Caller {
        Caller {
            account_id: "a1b2c3d4".into(),
            level,
            workspace: workspace.to_owned(),
            language: Language::En,
            token_prefix: "abcdef".into(),
        }
    }

    fn named_workspace(path: impl Into<String>) -> Overrides {
        Overrides { workspace: Some(path.into()), ..Overrides::default() }
    }

    fn named_session(id: &str) -> Overrides {
        Overrides { session_id: Some(id.into()), ..Overrides::default() }
    }

    fn text(path: &Path) -> String {
        path.to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn the_later_override_wins_and_an_empty_one_names_nothing() {
        let mut parts = Request::get("/?workspace=/q&sessionId=q&agentId=q&sessionId=second")
            .header("x-workspace", "/h")
            .header("x-session-id", "")
            .body(())
            .unwrap()
            .into_parts()
            .0;
        let Ok(named) = Overrides::from_request_parts(&mut parts, &()).await;
        let body = Fields::of_body(br#"{"workspace": "/b", "agentId": ""}"#, Overrides::FIELDS).unwrap();
        let all = named.clone().then(Overrides::of_fields(&body).unwrap());
        assert_eq!(named.workspace.as_deref(), Some("/h"));
        assert_eq!(all.workspace.as_deref(), Some("/b"));
        assert_eq!(all.session_id.as_deref(), Some("q"));
        assert_eq!(all.agent_id.as_deref(), Some("q"));
    }

    #[tokio::test]
    async fn only_a_full_token_names_another_workspace() {
        let (own, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let other_real = other.path().canonicalize().unwrap();
        let named = named_workspace(text(other.path()));
        for level in [AccountLevel::Workspace, AccountLevel::ReadOnly, AccountLevel::Observer] {
            let refused = workspace(&caller(level, own.path()), &named).await;
            assert_eq!(refused, Err(ApiError::WorkspaceOverride), "{level}");
        }
        assert_eq!(workspace(&caller(AccountLevel::Full, own.path()), &named).await, Ok(other_real));
    }

    #[tokio::test]
    async fn naming_the_own_workspace_is_no_override_however_it_is_written() {
        let own = TempDir::new().unwrap();
        let reader = caller(AccountLevel::ReadOnly, own.path());
        let link = own.path().join("link");
        std::os::unix::fs::symlink(own.path(), &link).unwrap();
        for path in [text(own.path()), format!("{}/", text(own.path())), text(&link)] {
            assert_eq!(workspace(&reader, &named_workspace(path)).await, Ok(own.path().to_owned()));
        }
    }

    #[tokio::test]
    async fn a_workspace_that_is_no_folder_is_not_found_and_only_full_learns_of_it() {
        let own = TempDir::new().unwrap();
        let file = own.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in ["sub", "/no/such/folder", "/tmp\0", file.to_str().unwrap()] {
            let named = named_workspace(path);
            let full = workspace(&caller(AccountLevel::Full, own.path()), &named).await;
            assert_eq!(full, Err(ApiError::WorkspaceNotFound), "{path:?}");
            let reader = workspace(&caller(AccountLevel::ReadOnly, own.path()), &named).await;
            assert_eq!(reader, Err(ApiError::WorkspaceOverride), "{path:?}");
        }
    }

    #[rstest]
    #[case(AccountLevel::ReadOnly, "web_a1b2c3d4_x", None)]
    #[case(AccountLevel::Observer, "web_a1b2c3d4_x>child", None)]
    #[case(AccountLevel::ReadOnly, "web_a1b2c3d4", Some(ApiError::NotOwned))]
    #[case(AccountLevel::Workspace, "web_other_x", Some(ApiError::NotOwned))]
    #[case(AccountLevel::Observer, "anything", Some(ApiError::NotOwned))]
    #[case(AccountLevel::Full, "anything", None)]
    #[case(AccountLevel::Full, "../../x", Some(ApiError::InvalidSessionId))]
    #[case(AccountLevel::ReadOnly, "../../x", Some(ApiError::InvalidSessionId))]
    #[tokio::test]
    async fn the_shape_of_a_session_id_is_checked_before_its_owner(
        #[case] level: AccountLevel,
        #[case] id: &str,
        #[case] refused: Option<ApiError>,
    ) {
        let target = Target::of(&engine(), &caller(level, Path::new("/")), &named_session(id)).await;
        assert_eq!(target.clone().err(), refused);
        assert_eq!(target.is_ok_and(|t| t.session.is_some()), refused.is_none());
    }

    #[tokio::test]
    async fn the_workspace_is_checked_before_the_session_id() {
        let named = Overrides { workspace: Some("/".into()), ..named_session("../x") };
        let refused = Target::of(&engine(), &caller(AccountLevel::ReadOnly, Path::new("/tmp")), &named).await;
        assert_eq!(refused, Err(ApiError::WorkspaceOverride));
    }

    #[rstest]
    #[case("0", Some(0))]
    #[case("1796148373010", Some(1_796_148_373_010))]
    #[case("99999999999999999999999999", Some(i64::MAX))]
    #[case("abc", None)]
    #[case("0x10", None)]
    #[case("1e3", None)]
    #[case("-1", None)]
    #[case("+1", None)]
    #[case("1.5", None)]
    #[case(" 1", None)]
    #[case("٣", None)]
    fn only_digits_are_digits(#[case] text: &str, #[case] number: Option<i64>) {
        assert_eq!(digits(text), number);
    }
}
