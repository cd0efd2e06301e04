//! `/workspace`: where the account works, and moving it elsewhere.

use super::{Asked, Reply, one_line, texts};
use crate::http::error::ApiError;
use crate::http::web::request::{self, Overrides};
use crate::store::accounts::{self, Change};

/// `info`.
pub fn info(asked: &Asked) -> Reply {
    let path = asked.target.workspace.display().to_string();
    Reply::text(texts::workspace_info(asked.language(), &path, asked.access().as_str()))
}

/// `switch <path>`. The account is rewritten only when the folder has become a workspace.
pub async fn switch(asked: &Asked, path: &str) -> Result<Reply, ApiError> {
    let language = asked.language();
    if path.is_empty() {
        return Ok(Reply::text(texts::usage(language, "/workspace switch", "<path>")));
    }
    let not_found = || Reply::text(texts::workspace_not_found(language, &one_line(path, 200)));
    let named = Overrides { workspace: Some(path.to_owned()), ..Overrides::default() };
    let folder = match request::workspace(&asked.caller, &named).await {
        Ok(folder) => folder,
        Err(ApiError::WorkspaceNotFound) => return Ok(not_found()),
        Err(error) => return Err(error),
    };
    let workspace = match asked.state.engine.workspace(&folder).await.map_err(ApiError::from) {
        Ok(workspace) => workspace,
        Err(ApiError::WorkspaceNotFound) => return Ok(not_found()),
        Err(error) => return Err(error),
    };
    let path = workspace.path();
    let change = Change { workspace_path: Some(path.to_owned()), ..Change::default() };
    let (account, now) = (&asked.caller.account_id, asked.state.clock.now_ms());
    if !accounts::update(&asked.state.accounts, account, change, now).await? {
        return Err(ApiError::InvalidToken);
    }
    asked.state.pointers.clear(account);
    Ok(Reply::text(texts::workspace_switched(language, &path.to_string_lossy())))
}
