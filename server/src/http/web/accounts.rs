//! `/api/web/accounts`: the accounts behind the tokens of the channel, for the admin. What is refused changes
//! nothing; a token that is deleted, disabled or replaced is dead when the answer leaves, and its streams end.

use super::body::{Fields, JsonBody};
use super::to_the_end;
use crate::access::AccountLevel;
use crate::http::AppState;
use crate::http::admin::AdminCookie;
use crate::http::admin::error::AdminError;
use crate::http::error::ApiError;
use crate::store::accounts::{self, Account, Change, Language, NewAccount};
use crate::workspace::scaffold;
use axum::Json;
use axum::extract::{FromRequestParts, Path as UrlPath, State};
use axum::http::request::Parts;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The longest label: characters.
const MAX_LABEL: usize = 1000;

const FIELDS: &[&str] = &["workspacePath", "label", "enabled", "accessLevel", "language", "rotateToken"];

/// An account as clients see it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    account_id: String,
    token_prefix: String,
    workspace_path: PathBuf,
    workspace_missing: bool,
    label: String,
    enabled: u8,
    access_level: &'static str,
    language: &'static str,
    created_at: i64,
    updated_at: i64,
}

impl Row {
    /// Looks whether the folder is there, so it touches the disk.
    pub fn of(account: Account) -> Self {
        Self {
            workspace_missing: !account.workspace_path.is_dir(),
            account_id: account.id,
            token_prefix: account.token_prefix,
            workspace_path: account.workspace_path,
            label: account.label,
            enabled: account.enabled.into(),
            access_level: account.level.as_str(),
            language: account.language.as_str(),
            created_at: account.created_at,
            updated_at: account.updated_at,
        }
    }
}

/// Every account, the oldest first. Tokens cannot be read back.
pub async fn list(State(state): State<AppState>, _: AdminCookie) -> Result<Json<Value>, ApiError> {
    let accounts = accounts::list(&state.accounts).await?;
    let rows = blocking(move || Ok(accounts.into_iter().map(Row::of).collect::<Vec<_>>())).await?;
    Ok(Json(json!({ "accounts": rows })))
}

/// Makes an account; the answer is the only sight of its token.
pub async fn create(
    State(state): State<AppState>,
    _: AdminCookie,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    let asked = Asked::of(&body)?;
    let path = asked.workspace_path.filter(|path| !path.is_empty());
    let workspace_path = absolute(&path.ok_or(AdminError::WorkspacePathRequired)?)?;
    to_the_end(async move {
        let workspace_path = prepared(workspace_path).await?;
        let new = NewAccount {
            workspace_path,
            label: asked.label.unwrap_or_default(),
            level: asked.level.unwrap_or(AccountLevel::ReadOnly),
            language: asked.language.unwrap_or_default(),
        };
        let made = accounts::create(&state.accounts, new, state.clock.now_ms()).await?;
        Ok(Json(json!({
            "accountId": made.account.id,
            "token": made.token,
            "workspacePath": made.account.workspace_path,
        })))
    })
    .await
}

/// Changes what the body names, as one change.
pub async fn change(
    State(state): State<AppState>,
    _: AdminCookie,
    AccountId(id): AccountId,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    // Before the body is judged.
    accounts::get(&state.accounts, &id).await?.ok_or(ApiError::NotFound)?;
    let asked = Asked::of(&body)?;
    let workspace_path = asked.workspace_path.as_deref().map(absolute).transpose()?;
    to_the_end(async move {
        let workspace_path = match workspace_path {
            Some(path) => Some(prepared(path).await?),
            None => None,
        };
        let change = Change {
            label: asked.label,
            workspace_path,
            enabled: asked.enabled,
            level: asked.level,
            language: asked.language,
        };
        let (db, now) = (&state.accounts, state.clock.now_ms());
        let token = if asked.rotate {
            Some(accounts::update_and_rotate(db, &id, change, now).await?.ok_or(ApiError::NotFound)?)
        } else if accounts::update(db, &id, change, now).await? {
            None
        } else {
            return Err(ApiError::NotFound);
        };
        state.streams.review().await?;
        Ok(Json(match token {
            Some(token) => json!({ "ok": true, "token": token }),
            None => json!({ "ok": true }),
        }))
    })
    .await
}

/// Deletes the account; one that is not there is as good as deleted.
pub async fn remove(
    State(state): State<AppState>,
    _: AdminCookie,
    AccountId(id): AccountId,
) -> Result<Json<Value>, ApiError> {
    to_the_end(async move {
        accounts::revoke(&state.accounts, &id).await?;
        state.pointers.clear(&id);
        state.streams.review().await?;
        Ok(Json(json!({ "ok": true })))
    })
    .await
}

/// The account that the path names; one that is no text is no account's.
pub struct AccountId(String);

impl<S: Send + Sync> FromRequestParts<S> for AccountId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = UrlPath::<String>::from_request_parts(parts, state).await;
        id.map(|UrlPath(id)| Self(id)).map_err(|_| ApiError::NotFound)
    }
}

/// What a body asks for; all but the workspace is judged.
#[derive(Debug)]
struct Asked {
    workspace_path: Option<String>,
    label: Option<String>,
    enabled: Option<bool>,
    level: Option<AccountLevel>,
    language: Option<Language>,
    rotate: bool,
}

impl Asked {
    fn of(body: &[u8]) -> Result<Self, ApiError> {
        let fields = Fields::of_body(body, FIELDS).ok_or(ApiError::InvalidBody)?;
        let label = fields.text("label")?;
        if label.as_ref().is_some_and(|label| label.chars().count() > MAX_LABEL) {
            return Err(
                AdminError::InvalidValue { field: "label", expected: "at most 1000 characters" }.into()
            );
        }
        let level = fields.text("accessLevel")?.map(|text| {
            AccountLevel::parse(&text).ok_or(AdminError::InvalidValue {
                field: "accessLevel",
                expected: "one of: full, workspace, readonly, observer",
            })
        });
        let language = fields.text("language")?.map(|text| {
            Language::parse(&text)
                .ok_or(AdminError::InvalidValue { field: "language", expected: "one of: en, zh" })
        });
        Ok(Self {
            workspace_path: fields.text("workspacePath")?,
            label,
            enabled: enabled(&fields)?,
            level: level.transpose()?,
            language: language.transpose()?,
            rotate: fields.get("rotateToken", "true or false")?.unwrap_or(false),
        })
    }
}

/// `true` and `false`; 1 and 0 too, since the list shows it so.
fn enabled(fields: &Fields<'_>) -> Result<Option<bool>, ApiError> {
    let Some(value) = fields.get::<&RawValue>("enabled", "true or false")? else { return Ok(None) };
    match value.get() {
        "1" => Ok(Some(true)),
        "0" => Ok(Some(false)),
        _ => fields.get("enabled", "true or false"),
    }
}

/// The path without a slash at its end.
fn absolute(text: &str) -> Result<PathBuf, AdminError> {
    let path = Path::new(text);
    if path.is_absolute() {
        Ok(path.components().collect())
    } else {
        Err(AdminError::InvalidValue { field: "workspacePath", expected: "absolute" })
    }
}

/// The folder with its `.halo/`. The last thing that may be refused, since it makes something.
async fn prepared(path: PathBuf) -> Result<PathBuf, ApiError> {
    blocking(move || {
        if !path.is_dir() {
            return Err(AdminError::WorkspacePathNotFound.into());
        }
        scaffold::make(&path).map_err(|error| {
            ApiError::WorkspaceUnusable(format!("{}: {error}", scaffold::folder(&path).display()))
        })?;
        Ok(path)
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?
}

#[cfg(test)]
mod tests;
