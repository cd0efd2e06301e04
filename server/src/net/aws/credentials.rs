//! Who calls Amazon: keys that were given, or what the default credential chain finds. The chain looks in the
//! environment, in the profile, for a web identity, and asks the container and the instance for their role. Promises
//! that it is asked only when needed, by one caller at a time, and within a bound; that what it found is kept until shortly
//! before it ends; and that [`Chain::forget`] makes the next caller look anew.

use super::http;
use crate::clock::{Clock, SystemClock};
use crate::net::causes;
use crate::text;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// How long the chain may look: an instance without a metadata service, or a program that never answers, ends here.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// How long credentials that name no end are kept: a file that a tool renews counts after this.
const KEPT_MS: i64 = 15 * 60 * 1000;

/// Credentials that end sooner than this are renewed before they are used.
const MARGIN_MS: i64 = 5 * 60 * 1000;

/// How many chains are held, one a region.
const MAX_CHAINS: usize = 64;

/// How much of a reason is shown.
const MAX_REASON: usize = 600;

/// Why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsFault {
    /// Nothing was set up anywhere.
    #[error(
        "no AWS credentials were found. Looked in the environment (AWS_ACCESS_KEY_ID), in the profile `{0}` of \
         ~/.aws/credentials and ~/.aws/config, for a web identity, and for the role of the container and of the EC2 \
         instance"
    )]
    NotFound(String),
    /// A place of the chain did not answer.
    #[error("no AWS credentials came within {} s; a credential process or the metadata service does not answer", PATIENCE.as_secs())]
    Slow,
    /// Something is set up and does not work.
    #[error("the AWS credentials cannot be used: {0}")]
    Unusable(String),
}

/// The default credential chain for one region.
pub struct Chain {
    region: Option<String>,
    /// Environment and profile, read when first needed.
    config: OnceCell<SdkConfig>,
    /// What was found last, and until when it is used, in milliseconds since 1970.
    found: tokio::sync::Mutex<Option<(Credentials, i64)>>,
}

static CHAINS: LazyLock<Mutex<HashMap<Option<String>, Arc<Chain>>>> = LazyLock::new(Mutex::default);

impl Chain {
    /// The chain that everybody shares who calls this region; `None`: whatever region environment and profile name.
    pub fn shared(region: Option<&str>) -> Arc<Self> {
        let region = region.map(str::to_owned);
        let mut chains = CHAINS.lock().unwrap_or_else(PoisonError::into_inner);
        if chains.len() >= MAX_CHAINS && !chains.contains_key(&region) {
            chains.clear();
        }
        let make =
            || Self { region: region.clone(), config: OnceCell::new(), found: tokio::sync::Mutex::default() };
        Arc::clone(chains.entry(region.clone()).or_insert_with(|| Arc::new(make())))
    }

    /// Makes the next [`Self::shared`] read files and environment anew: what this one gave was refused.
    pub fn forget(self: &Arc<Self>) {
        let mut chains = CHAINS.lock().unwrap_or_else(PoisonError::into_inner);
        if chains.get(&self.region).is_some_and(|known| Arc::ptr_eq(known, self)) {
            chains.remove(&self.region);
        }
    }

    /// Credentials that are good for a while yet. Waits at most [`PATIENCE`].
    pub async fn credentials(self: &Arc<Self>) -> Result<Credentials, CredentialsFault> {
        let found = timeout(PATIENCE, self.find()).await.unwrap_or(Err(CredentialsFault::Slow));
        if found.is_err() {
            self.forget();
        }
        found
    }

    /// The region of the calls: the one it is for, else that of environment, profile or instance. Waits at most
    /// [`PATIENCE`].
    pub async fn region(self: &Arc<Self>) -> Option<String> {
        if self.region.is_some() {
            return self.region.clone();
        }
        let config = timeout(PATIENCE, self.config()).await.ok();
        let region = config.and_then(|config| Some(config.region()?.to_string()));
        if region.is_none() {
            self.forget();
        }
        region
    }

    async fn find(&self) -> Result<Credentials, CredentialsFault> {
        let mut found = self.found.lock().await;
        let now = SystemClock.now_ms();
        if let Some((credentials, until)) = &*found
            && now < *until
        {
            return Ok(credentials.clone());
        }
        let provider = self.config().await.credentials_provider().ok_or_else(nothing)?;
        let credentials = provider.provide_credentials().await.map_err(|why| fault(&why))?;
        let end = credentials.expiry().and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        let until = end.map_or(now + KEPT_MS, |end| end.as_millis() as i64 - MARGIN_MS);
        *found = Some((credentials.clone(), until));
        Ok(credentials)
    }

    async fn config(&self) -> &SdkConfig {
        let load = || async {
            let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http::sdk_client());
            match &self.region {
                Some(region) => loader.region(Region::new(region.clone())).load().await,
                None => loader.load().await,
            }
        };
        self.config.get_or_init(load).await
    }
}

fn nothing() -> CredentialsFault {
    let profile = std::env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
    CredentialsFault::NotFound(profile.unwrap_or_else(|| "default".to_owned()))
}

fn fault(why: &CredentialsError) -> CredentialsFault {
    match why {
        CredentialsError::CredentialsNotLoaded(_) => nothing(),
        CredentialsError::ProviderTimedOut(_) => CredentialsFault::Slow,
        // The outermost text only says that credentials could not be loaded.
        _ => {
            let inner = std::error::Error::source(why);
            let reason = inner.map_or_else(|| why.to_string(), causes);
            CredentialsFault::Unusable(text::head_chars(&reason, MAX_REASON).to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_chain_is_shared_by_its_region_until_it_is_forgotten() {
        let one = Chain::shared(Some("xx-test-1"));
        assert!(Arc::ptr_eq(&one, &Chain::shared(Some("xx-test-1"))));
        assert!(!Arc::ptr_eq(&one, &Chain::shared(Some("xx-test-2"))));
        assert_eq!(one.region().await.as_deref(), Some("xx-test-1"));
        one.forget();
        let other = Chain::shared(Some("xx-test-1"));
        assert!(!Arc::ptr_eq(&one, &other));
        // Only its own place is given up.
        one.forget();
        assert!(Arc::ptr_eq(&other, &Chain::shared(Some("xx-test-1"))));
    }

    #[tokio::test]
    async fn credentials_are_kept_until_shortly_before_their_end() {
        let now = SystemClock.now_ms();
        let chain =
            Arc::new(Chain { region: None, config: OnceCell::new(), found: tokio::sync::Mutex::default() });
        let known = Credentials::new("AKIDKNOWN", "s", None, None, "test");
        *chain.found.lock().await = Some((known, now + 60_000));
        assert_eq!(chain.credentials().await.unwrap().access_key_id(), "AKIDKNOWN");
    }

    #[test]
    fn every_fault_says_what_was_tried_and_none_is_a_riddle() {
        assert!(fault(&CredentialsError::not_loaded_no_source()).to_string().contains("EC2 instance"));
        assert_eq!(fault(&CredentialsError::provider_timed_out(PATIENCE)), CredentialsFault::Slow);
        let broken = fault(&CredentialsError::invalid_configuration("the profile `x` has no region"));
        let text = "the AWS credentials cannot be used: the profile `x` has no region";
        assert_eq!(broken.to_string(), text);
    }
}
