//! The admin: one password, one cookie, no levels (web contract, section 4). `/api/auth/*`, and what every other
//! route behind the cookie needs: [`AdminCookie`]. Who is logged in may do all; what that is, is the business of
//! those routes.

pub mod cookie;
pub mod error;
mod hashes;
mod login;
mod origin;
mod password;

#[cfg(test)]
mod tests;

use super::auth::client_addr::client_addr;
use super::auth::lockout::{Bucket, Locked, Lockout};
use super::error::ApiError;
use super::web::body::read_json;
use super::{AppState, SettingsSource};
use crate::clock::Clock;
use crate::config::Live;
use crate::config::password::generate_jwt_secret;
use axum::Router;
use axum::extract::{FromRef, FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::routing::{get, post};
use bytes::Bytes;
use cookie::{Session, Signer};
use error::AdminError;
use hashes::Hashes;
use secrecy::SecretString;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The longest body that holds nothing but passwords: bytes.
const MAX_BODY: usize = 64 * 1024;

/// The routes of the admin's own.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/api/auth/login", post(login::login))
        .route("/api/auth/logout", post(login::logout))
        .route("/api/auth/check", get(login::check))
        .route("/api/auth/change-password", post(password::change))
}

/// Tells the admin from others.
pub struct Admin {
    live: Live,
    signer: Signer,
    lockout: Arc<Lockout>,
    hashes: Hashes,
    /// Held while the password is being changed.
    changing: Mutex<()>,
    settings: SettingsSource,
    clock: Arc<dyn Clock>,
}

impl Admin {
    /// The admin of this configuration. The secret that signs is read once.
    pub fn new(live: Live, lockout: Arc<Lockout>, settings: SettingsSource, clock: Arc<dyn Clock>) -> Self {
        // Without one (nothing was made or stored) cookies end with this process.
        let secret = live.current().jwt_secret.clone().unwrap_or_else(generate_jwt_secret);
        let (hashes, changing) = (Hashes::default(), Mutex::default());
        Self { live, signer: Signer::new(&secret), lockout, hashes, changing, settings, clock }
    }

    /// The session that the request's cookie stands for.
    pub fn session(&self, headers: &HeaderMap) -> Option<Session> {
        self.signer.session(headers, self.clock.now_ms())
    }

    /// A request that may change something must come from a page of ours.
    fn refuse_cross_site(&self, parts: &Parts) -> Result<(), ApiError> {
        if parts.method.is_safe() {
            return Ok(());
        }
        let settings = (self.settings)();
        if origin::is_ours(parts, &settings.cors_origins, settings.trust_proxy) {
            Ok(())
        } else {
            Err(AdminError::CrossSite.into())
        }
    }

    /// An address that is locked out may not try at all.
    fn refuse_locked(&self, bucket: Bucket, address: IpAddr) -> Result<(), AdminError> {
        self.lockout.check(bucket, address, self.clock.now_ms()).map_err(AdminError::from)
    }

    /// Whether the candidate is the password. Counts as a try of this address: the fifth wrong one locks it out.
    async fn try_password(
        &self,
        bucket: Bucket,
        address: IpAddr,
        candidate: SecretString,
    ) -> Result<bool, ApiError> {
        self.refuse_locked(bucket, address)?;
        let turn = self.hashes.turn().await?;
        // Others of this address may have failed while this one waited.
        self.refuse_locked(bucket, address)?;
        let password = self.live.current().password.clone();
        let right = turn.compare(password, candidate).await?;
        let now = self.clock.now_ms();
        let counted = if right {
            self.lockout.clear(bucket, address, now)
        } else {
            self.lockout.strike(bucket, address, now)
        };
        counted.map_err(AdminError::from)?;
        Ok(right)
    }
}

impl From<Locked> for AdminError {
    fn from(locked: Locked) -> Self {
        Self::LockedOut { retry_after: locked.retry_after }
    }
}

/// The request has the admin's cookie and, where it may change something, comes from a page of ours. Stands before
/// the body, so that nothing of a stranger's body is read.
#[derive(Clone, Copy, Debug)]
pub struct AdminCookie;

impl<S> FromRequestParts<S> for AdminCookie
where
    S: Send + Sync,
    Arc<Admin>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let admin = Arc::<Admin>::from_ref(state);
        admin.session(&parts.headers).ok_or(ApiError::Unauthorized)?;
        admin.refuse_cross_site(parts)?;
        Ok(Self)
    }
}

/// A request that needs no cookie, but sets one: no other site's page may bring it about.
#[derive(Clone, Copy, Debug)]
struct OwnPage;

impl<S> FromRequestParts<S> for OwnPage
where
    S: Send + Sync,
    Arc<Admin>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Arc::<Admin>::from_ref(state).refuse_cross_site(parts)?;
        Ok(Self)
    }
}

/// The address may try to log in: who is locked out hears that and nothing else, and no body of it is read.
#[derive(Clone, Copy, Debug)]
struct MayTry;

impl<S> FromRequestParts<S> for MayTry
where
    S: Send + Sync,
    Arc<Admin>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let admin = Arc::<Admin>::from_ref(state);
        admin.refuse_locked(Bucket::Login, client_addr(parts, (admin.settings)().trust_proxy))?;
        Ok(Self)
    }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// The address that failures count for.
    address: IpAddr,
    /// Whether the browser speaks TLS, to the proxy in front of us.
    over_tls: bool,
}

impl<S> FromRequestParts<S> for Peer
where
    S: Send + Sync,
    Arc<Admin>: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let trust_proxy = (Arc::<Admin>::from_ref(state).settings)().trust_proxy;
        let proto = parts.headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
        // The first of several is what the browser speaks; the others are hops between proxies.
        let proto = proto.and_then(|list| list.split(',').next()).unwrap_or_default();
        let over_tls = trust_proxy && proto.trim().eq_ignore_ascii_case("https");
        Ok(Self { address: client_addr(parts, trust_proxy), over_tls })
    }
}

/// A JSON body for passwords. Anyone may send one, so little of it is read.
struct SmallBody(Bytes);

impl<S: Send + Sync> FromRequest<S> for SmallBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        match read_json(request, MAX_BODY).await {
            Err(ApiError::BodyTooLarge) => Err(AdminError::BodyTooLarge.into()),
            body => body.map(Self),
        }
    }
}
