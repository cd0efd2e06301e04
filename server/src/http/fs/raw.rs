//! `GET /api/fs/raw`: the bytes of a file, streamed as the client takes them.

use super::{Named, blocking, names};
use crate::http::AppState;
use crate::http::admin::AdminCookie;
use crate::http::content;
use crate::http::error::ApiError;
use crate::http::web::request::Query;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::Response;

/// Sends the file, or what of it the client asks for. FIFOs, sockets and devices are refused before they could block.
pub async fn raw(
    State(state): State<AppState>,
    _: AdminCookie,
    query: Query,
    method: Method,
    asked: HeaderMap,
) -> Result<Response, ApiError> {
    let named = Named::plain(&query)?;
    let name = named.path.file_name().map(names::text_of).unwrap_or_default();
    let places = (state.settings)().hidden;
    let opened = blocking(move || {
        let found = named.open(&places.browsed(), "realpath")?;
        found.into_file().map_err(|error| named.refusal(error, "open"))
    })
    .await?;
    let mut response = content::answer(opened, &name, &method, &asked)?;
    if let Some(kind) = response.headers_mut().get_mut(CONTENT_TYPE) {
        *kind = HeaderValue::from_static("application/octet-stream");
    }
    Ok(response)
}
