//! Tokens of channel accounts: how they travel, and checks 1 to 3 of the order of checks (web contract,
//! section 1). A handler that takes a [`Caller`] has passed them, and one that takes a [`WithBody`] has passed them
//! before and after its body was read.

use super::client_addr::client_addr;
use super::lockout::{Bucket, Locked, Lockout};
use crate::access::AccountLevel;
use crate::clock::Clock;
use crate::http::SettingsSource;
use crate::http::error::ApiError;
use crate::http::web::body::JsonBody;
use crate::http::web::request::Query;
use crate::session::ids::SessionId;
use crate::store::accounts::{Account, Language};
use crate::store::{Database, accounts};
use axum::extract::{FromRef, FromRequest, FromRequestParts, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;

/// The account behind a request, as it is at this moment.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The account.
    pub account_id: String,
    /// Its level.
    pub level: AccountLevel,
    /// Its workspace, as stored.
    pub workspace: PathBuf,
    /// The language that its owner reads.
    pub language: Language,
    /// The readable start of the token that it came with.
    pub token_prefix: String,
}

impl Caller {
    /// What the account's own sessions start with.
    pub fn session_prefix(&self) -> String {
        SessionId::web_prefix(&self.account_id)
    }

    /// Whether the account may address the session (check 6).
    pub fn owns(&self, id: &SessionId) -> bool {
        self.level == AccountLevel::Full || id.as_str().starts_with(&self.session_prefix())
    }
}

/// Decides who may come in: the accounts, and the lockout in front of them.
pub struct Gate {
    accounts: Database,
    lockout: Arc<Lockout>,
    settings: SettingsSource,
    clock: Arc<dyn Clock>,
}

impl Gate {
    /// A gate with this lockout in front.
    pub fn new(
        accounts: Database,
        lockout: Arc<Lockout>,
        settings: SettingsSource,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { accounts, lockout, settings, clock }
    }

    /// Checks 1 to 3. The account is looked up every time, so that a change of level, a rotated or a disabled
    /// token counts at once.
    pub async fn admit(&self, parts: &Parts) -> Result<Caller, ApiError> {
        let address = client_addr(parts, (self.settings)().trust_proxy);
        self.lockout.check(Bucket::Token, address, self.clock.now_ms())?;
        let token = token_of(parts).ok_or(ApiError::TokenRequired)?;
        let account = accounts::by_token(&self.accounts, &token).await?;
        let now = self.clock.now_ms();
        let Some(account) = account else {
            self.lockout.strike(Bucket::Token, address, now)?;
            return Err(ApiError::InvalidToken);
        };
        self.lockout.clear(Bucket::Token, address, now)?;
        Ok(account.into())
    }

    /// Check 3 once more, for somebody who was admitted a while ago: the account as it is now. No strike, since the
    /// token was good when it came.
    async fn readmit(&self, caller: Caller) -> Result<Caller, ApiError> {
        let account = accounts::get(&self.accounts, &caller.account_id).await?;
        let account = account.filter(|now| now.enabled && now.token_prefix == caller.token_prefix);
        account.map(Caller::from).ok_or(ApiError::InvalidToken)
    }
}

impl From<Account> for Caller {
    fn from(account: Account) -> Self {
        Self {
            account_id: account.id,
            level: account.level,
            workspace: account.workspace_path,
            language: account.language,
            token_prefix: account.token_prefix,
        }
    }
}

impl From<Locked> for ApiError {
    fn from(locked: Locked) -> Self {
        Self::LockedOut { retry_after: locked.retry_after }
    }
}

impl<S> FromRequestParts<S> for Caller
where
    S: Send + Sync,
    Arc<Gate>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Arc::<Gate>::from_ref(state).admit(parts).await
    }
}

/// A [`Caller`] with its JSON body, of which nothing is read for a stranger. A body takes as long as its sender
/// likes, so the account counts as it is when the body has come: a token that died meanwhile opens nothing.
pub struct WithBody(pub Caller, pub Bytes);

impl<S> FromRequest<S> for WithBody
where
    S: Send + Sync,
    Arc<Gate>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let gate = Arc::<Gate>::from_ref(state);
        let (parts, body) = request.into_parts();
        let caller = gate.admit(&parts).await?;
        let JsonBody(body) = JsonBody::from_request(Request::from_parts(parts, body), state).await?;
        Ok(Self(gate.readmit(caller).await?, body))
    }
}

/// The token of a request, first found counts: `x-token`, `?token=`, `Authorization: Bearer`. A Bearer value
/// that cannot be one of our tokens belongs to a gateway in front of us, and counts as absent.
fn token_of(parts: &Parts) -> Option<String> {
    let header = |name: &str| parts.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    if let Some(token) = header("x-token").filter(|token| !token.is_empty()) {
        return Some(token.into_owned());
    }
    if let Some(token) = Query::of(parts).get("token") {
        return Some(token.to_owned());
    }
    let authorization = header(AUTHORIZATION.as_str())?;
    let (scheme, value) = authorization.split_once(' ')?;
    let value = value.trim();
    (scheme.eq_ignore_ascii_case("bearer") && accounts::looks_like_token(value)).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use rstest::rstest;

    const SHAPED: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAA-_9";

    #[rstest]
    #[case("/?token=query", &[("x-token", "header")], Some("header"))]
    #[case("/?token=query", &[("authorization", "Bearer AAAAAAAAAAAAAAAAAAAAAAAAAAAAA-_9")], Some("query"))]
    #[case("/", &[("authorization", "Bearer AAAAAAAAAAAAAAAAAAAAAAAAAAAAA-_9")], Some(SHAPED))]
    #[case("/", &[("authorization", "bearer AAAAAAAAAAAAAAAAAAAAAAAAAAAAA-_9")], Some(SHAPED))]
    #[case("/", &[("authorization", "Bearer eyJhbGciOiJIUzI1NiJ9.e30.gateway")], None)]
    #[case("/", &[("authorization", "Basic AAAAAAAAAAAAAAAAAAAAAAAAAAAAA-_9")], None)]
    #[case("/?token=", &[("x-token", "")], None)]
    #[case("/?token=a%2Bb", &[], Some("a+b"))]
    #[case("/", &[], None)]
    fn the_first_token_found_counts(
        #[case] uri: &str,
        #[case] headers: &[(&str, &str)],
        #[case] expected: Option<&str>,
    ) {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        assert_eq!(token_of(&parts).as_deref(), expected);
    }
}
