//! `POST /api/auth/change-password`: a new admin password, stored as `halo password` stores it. It counts from the
//! next login on; cookies that are out there stay good.

use super::error::AdminError;
use super::{Admin, AdminCookie, Peer, SmallBody};
use crate::config::edit;
use crate::config::password::{AdminPassword, broken_rule};
use crate::http::auth::lockout::Bucket;
use crate::http::error::ApiError;
use crate::http::web::body::Fields;
use crate::http::web::to_the_end;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;

/// Changes it. A body that is no JSON object holds no old password, which is a wrong one.
pub async fn change(
    State(admin): State<Arc<Admin>>,
    AdminCookie: AdminCookie,
    peer: Peer,
    SmallBody(body): SmallBody,
) -> Result<Json<Value>, ApiError> {
    let (old, new) = match Fields::of_body(&body, &["oldPassword", "newPassword"]) {
        Some(fields) => (fields.text("oldPassword")?, fields.text("newPassword")?),
        None => (None, None),
    };
    to_the_end(change_it(admin, peer.address, old.unwrap_or_default(), new.unwrap_or_default())).await?;
    Ok(Json(json!({ "ok": true })))
}

async fn change_it(admin: Arc<Admin>, address: IpAddr, old: String, new: String) -> Result<(), ApiError> {
    // One at a time: of two that know the old password, the second does not know it any more.
    let _changing = admin.changing.lock().await;
    if matches!(admin.live.current().password, AdminPassword::Environment(_)) {
        return Err(AdminError::PasswordOfEnvironment.into());
    }
    if !admin.try_password(Bucket::PasswordChange, address, old.clone().into()).await? {
        return Err(AdminError::IncorrectPassword.into());
    }
    if let Some(rule) = broken_rule(&new) {
        return Err(AdminError::WeakPassword(rule).into());
    }
    if new == old {
        return Err(AdminError::SamePassword.into());
    }
    let hash = admin.hashes.turn().await?.hash(new.into()).await?;
    let live = admin.live.clone();
    let stored = tokio::task::spawn_blocking(move || {
        edit::set(&live.home().config_yaml(), "server", "password", &hash)?;
        live.reload();
        Ok(())
    });
    stored.await.map_err(ApiError::internal)?.map_err(|error: edit::EditError| {
        // The line to write by hand would hold the hash.
        let reason = match error {
            edit::EditError::Layout { path, .. } => {
                format!("{path}: its layout is beyond what can be edited; set it with `halo password`")
            }
            other => other.to_string(),
        };
        tracing::error!("a new admin password could not be stored: {reason}");
        AdminError::PasswordNotStored(reason).into()
    })
}
