//! A stand-in for the metadata service of an EC2 instance: it hands out the credentials of a role.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The service; stops when dropped.
pub struct Metadata {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    key: Mutex<String>,
    asked: AtomicUsize,
}

impl Metadata {
    /// Starts on a free port of 127.0.0.1, with a role whose access key has this id.
    pub async fn start(key: &str) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { key: Mutex::new(key.to_owned()), asked: AtomicUsize::new(0) });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            // Ends with the task; an error of the listener shows as refused connections.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, shared, task })
    }

    /// What `AWS_EC2_METADATA_SERVICE_ENDPOINT` has to be.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests came.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Gives another key from now on.
    pub fn set_key(&self, key: &str) {
        key.clone_into(&mut self.shared.key.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> (StatusCode, HeaderMap, String) {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
    shared.asked.fetch_add(1, Ordering::Relaxed);
    let mut given = HeaderMap::new();
    if method == Method::PUT && uri.path() == "/latest/api/token" {
        given
            .extend(headers.get(TTL).cloned().map(|value| (axum::http::HeaderName::from_static(TTL), value)));
        return (StatusCode::OK, given, "a-token".to_owned());
    }
    if headers.get("x-aws-ec2-metadata-token").is_none_or(|token| token != "a-token") {
        return (StatusCode::UNAUTHORIZED, given, String::new());
    }
    let key = shared.key.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = match uri.path() {
        "/latest/meta-data/placement/region" => "eu-north-1".to_owned(),
        path if path.trim_end_matches('/') == ROLES.trim_end_matches('/') => "the-role".to_owned(),
        path if path == format!("{ROLES}the-role") => json!({
            "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
            "Expiration": "2099-01-01T00:00:00Z", "AccessKeyId": key, "SecretAccessKey": "role-secret",
            "Token": "role-token",
        })
        .to_string(),
        _ => return (StatusCode::NOT_FOUND, given, String::new()),
    };
    (StatusCode::OK, given, text)
}
