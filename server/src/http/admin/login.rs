//! Logging in and out, and asking whether one is.

use super::cookie::removal;
use super::error::AdminError;
use super::{Admin, MayTry, OwnPage, Peer, SmallBody};
use crate::http::auth::lockout::Bucket;
use crate::http::error::ApiError;
use crate::http::web::body::Fields;
use crate::http::web::to_the_end;
use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

/// `POST /api/auth/login`. A body that is no JSON object holds no password, which is a wrong one.
pub async fn login(
    State(admin): State<Arc<Admin>>,
    MayTry: MayTry,
    OwnPage: OwnPage,
    peer: Peer,
    SmallBody(body): SmallBody,
) -> Result<Response, ApiError> {
    let password = match Fields::of_body(&body, &["password"]) {
        Some(fields) => fields.text("password")?.unwrap_or_default(),
        None => String::new(),
    };
    // To its end: a client that leaves must not get a try for nothing.
    let signer = admin.clone();
    let right =
        to_the_end(async move { admin.try_password(Bucket::Login, peer.address, password.into()).await });
    if !right.await? {
        return Err(AdminError::InvalidPassword.into());
    }
    let cookie = signer.new_cookie(peer)?;
    Ok(([(SET_COOKIE, cookie)], Json(json!({ "ok": true }))).into_response())
}

/// `POST /api/auth/logout`, with a cookie or without. The token itself stays good until it ends.
pub async fn logout(OwnPage: OwnPage) -> Response {
    ([(SET_COOKIE, removal())], Json(json!({ "ok": true }))).into_response()
}

/// `GET /api/auth/check`. Renews a cookie that is older than a day.
pub async fn check(
    State(admin): State<Arc<Admin>>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let session = admin.session(&headers);
    let status = if session.is_some() { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
    let body = json!({ "authenticated": session.is_some(), "badge": admin.live.current().badge });
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if session.is_some_and(|session| session.is_old(admin.clock.now_ms())) {
        response.headers_mut().insert(SET_COOKIE, admin.new_cookie(peer)?);
    }
    Ok(response)
}

impl Admin {
    fn new_cookie(&self, peer: Peer) -> Result<HeaderValue, ApiError> {
        self.signer.issue(self.clock.now_ms(), peer.over_tls).map_err(ApiError::internal)
    }
}
