//! What the tests of this floor share.

use crate::access::AccessLevel;
use crate::agent::Agent;
use crate::agent::profile::{DisabledItem, Profile};
use crate::clock::SystemClock;
use crate::session::{AgentRequest, AgentSource, Engine, Member, Parts, Unavailable};
use crate::store::Database;
use crate::store::schema::Schema;
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// The whole body as text.
pub async fn text_of(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The `data:` of every frame of an event stream.
pub fn frames(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

struct NoAgents;

impl AgentSource for NoAgents {
    fn choose(&self, _: &Path, _: Option<&str>, _: &[DisabledItem]) -> Result<(String, String), Unavailable> {
        Err(Unavailable::No)
    }

    fn visible(&self, _: &Path, _: &[DisabledItem]) -> Vec<Profile> {
        Vec::new()
    }

    fn team(&self, _: &Path, _: &str, _: AccessLevel, _: &[DisabledItem]) -> Result<Vec<Member>, String> {
        Ok(Vec::new())
    }

    fn build(&self, _: AgentRequest<'_>) -> Result<Agent, String> {
        Err("no agent here".into())
    }
}

/// An engine without agents: no test of this floor starts a run.
pub fn engine() -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let runs = Database::open(&folder.path().join("runs.db"), Schema::Runs).unwrap();
    Engine::new(Parts { runs, agents: Arc::new(NoAgents), clock: Arc::new(SystemClock) })
}
