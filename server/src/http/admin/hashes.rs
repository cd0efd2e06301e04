//! A password hash takes some 50 ms of a core and 16 MiB: two are computed at once, and only so many
//! wait that a flood of logins delays a good one by a second or two.

use super::error::AdminError;
use crate::config::password::{self, AdminPassword, HashError};
use crate::http::error::ApiError;
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many are computed at once.
const AT_ONCE: usize = 2;
/// How many may wait or be computed.
const MAX_WAITING: usize = 32;

/// Hands out turns.
pub struct Hashes {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for Hashes {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(AT_ONCE)), waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }
}

/// Leave to compute one hash. It goes with the work, so that work whose client has left still counts.
pub struct Turn {
    _running: OwnedSemaphorePermit,
    _waiting: OwnedSemaphorePermit,
}

impl Hashes {
    /// Waits for a turn; refuses when too many wait already.
    pub async fn turn(&self) -> Result<Turn, ApiError> {
        let waiting = self.waiting.clone().try_acquire_owned().map_err(|_| AdminError::Busy)?;
        let running = self.running.clone().acquire_owned().await.map_err(ApiError::internal)?;
        Ok(Turn { _running: running, _waiting: waiting })
    }
}

impl Turn {
    /// Whether the candidate is the password.
    pub async fn compare(self, password: AdminPassword, candidate: SecretString) -> Result<bool, ApiError> {
        self.spend(move || password.matches(candidate.expose_secret())).await
    }

    /// The stored form of a new password.
    pub async fn hash(self, password: SecretString) -> Result<String, ApiError> {
        let hashed: Result<String, HashError> =
            self.spend(move || password::hash(password.expose_secret())).await?;
        hashed.map_err(ApiError::internal)
    }

    async fn spend<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let work = move || {
            let _turn = self;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_are_computed_at_once_and_only_so_many_wait() {
        let hashes = Hashes::default();
        let (first, second) = (hashes.turn().await.unwrap(), hashes.turn().await.unwrap());
        let mut waiting: Vec<_> = (2..MAX_WAITING).map(|_| Box::pin(hashes.turn())).collect();
        for turn in &mut waiting {
            assert!(futures_util::poll!(turn).is_pending());
        }
        assert_eq!(hashes.turn().await.err(), Some(AdminError::Busy.into()));
        drop(first);
        assert!(futures_util::poll!(&mut waiting[0]).is_ready());
        drop(second);
    }
}
