//! Models at Amazon: as whom and in which region they are called, signatures for those that speak another protocol over
//! HTTP, and what Amazon's refusals mean ([`fault`]). Keys from the settings go first; without them the default
//! credential chain is asked, at the first call and not before.

pub(super) mod fault;

use super::error::plain;
use super::provider::Provider;
use super::registry::{BuildError, SecretLookup};
use super::transport::Sign;
use super::{ErrorKind, ModelError};
use crate::clock::{Clock, iso};
use crate::net::aws::credentials::{Chain, CredentialsFault};
use crate::net::aws::{region, sign};
use aws_credential_types::Credentials;
use fault::{About, Refusal};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use reqwest::Url;
use secrecy::ExposeSecret;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The names under `<provider>.secrets`.
pub(super) const ACCESS_KEY_ID: &str = "access_key_id";
pub(super) const SECRET_ACCESS_KEY: &str = "secret_access_key";
const SESSION_TOKEN: &str = "session_token";

/// The service's name in signatures, where a provider file names no other.
const SERVICE: &str = "bedrock";

/// How long a look for people may take.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// Who calls, and where.
#[derive(Clone)]
pub(super) struct Identity {
    provider: Arc<str>,
    /// From the settings; none: whatever the chain finds.
    keys: Option<Credentials>,
    /// What the settings may hold in place of the chain, for people.
    settings: String,
    /// Of the file or the host; none: whatever environment and profile name.
    region: Option<String>,
}

impl Identity {
    /// The identity for calls at `url`. Of the two keys, one without the other is an error.
    pub(super) fn of(provider: &Provider, url: &Url, secret: SecretLookup<'_>) -> Result<Self, BuildError> {
        let get = |key: &str| {
            let value = secret(&provider.id, key)?.expose_secret().trim().to_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        let missing =
            |key: &str| BuildError::MissingSecret { provider: provider.id.clone(), key: key.to_owned() };
        let keys = match (get(ACCESS_KEY_ID), get(SECRET_ACCESS_KEY)) {
            (Some(id), Some(key)) => Some(Credentials::new(id, key, get(SESSION_TOKEN), None, "settings")),
            (Some(_), None) => return Err(missing(SECRET_ACCESS_KEY)),
            (None, Some(_)) => return Err(missing(ACCESS_KEY_ID)),
            (None, None) => None,
        };
        let given = provider.sigv4.as_ref().and_then(|given| given.region.clone());
        let region = given.or_else(|| region::of_host(url.host_str()?).map(str::to_owned));
        let api_key = provider.secrets.iter().find(|field| field.secret && field.key != ACCESS_KEY_ID);
        let settings = match api_key {
            Some(field) if provider.runtime != "bedrock-invoke" => {
                format!("`{}.secrets.{}`", provider.id, field.key)
            }
            _ => format!("`{}.secrets.{ACCESS_KEY_ID}` and `{SECRET_ACCESS_KEY}`", provider.id),
        };
        Ok(Self { provider: provider.id.as_str().into(), keys, settings, region })
    }

    /// Credentials that are good for a while yet.
    pub(super) async fn credentials(&self) -> Result<Credentials, ModelError> {
        if let Some(keys) = &self.keys {
            return Ok(keys.clone());
        }
        self.chain().credentials().await.map_err(|why| {
            let kind = if why == CredentialsFault::Slow { ErrorKind::Network } else { ErrorKind::Account };
            plain(kind, format!("{why}; {}", self.mend(&why)))
        })
    }

    /// The region of the calls.
    pub(super) async fn region(&self) -> Result<String, ModelError> {
        if let Some(region) = &self.region {
            return Ok(region.clone());
        }
        self.chain().region().await.ok_or_else(|| {
            let message = "no AWS region: the endpoint's host names none, and neither do AWS_REGION and the profile; set one \
                           of them, or `sigv4: { region: … }` in the provider's file";
            plain(ErrorKind::Fatal, message)
        })
    }

    /// What a refusal means.
    pub(super) fn refused(&self, refusal: &Refusal<'_>, model: &str, region: &str) -> ModelError {
        self.learn(fault::judge(refusal, &self.about(model, region)))
    }

    fn about<'a>(&'a self, model: &'a str, region: &'a str) -> About<'a> {
        About { provider: &self.provider, model, region, own_keys: self.keys.is_some() }
    }

    /// Credentials of the chain that were refused are looked for anew by the next call.
    fn learn(&self, error: ModelError) -> ModelError {
        if error.kind == ErrorKind::Account && self.keys.is_none() {
            self.chain().forget();
        }
        error
    }

    /// What is there, in words for people; `None`: keys from the settings, which only a call can judge.
    pub(super) fn look(self) -> Option<BoxFuture<'static, Result<String, String>>> {
        if self.keys.is_some() {
            return None;
        }
        Some(
            async move {
                let found = tokio::time::timeout(LOOK_PATIENCE, async {
                    Ok::<_, ModelError>((self.credentials().await?, self.region().await?))
                });
                let (credentials, region) = found
                    .await
                    .map_err(|_| format!("no AWS credentials came within {} s", LOOK_PATIENCE.as_secs()))?
                    .map_err(|error| error.message)?;
                let id = credentials.access_key_id();
                let end = credentials.expiry().and_then(|end| end.duration_since(UNIX_EPOCH).ok());
                let until = end
                    .map_or_else(String::new, |end| format!(", good until {}", iso(end.as_millis() as i64)));
                let tail = id.char_indices().rev().nth(3).map_or(id, |(at, _)| &id[at..]);
                Ok(format!("AWS credentials found, for {region}: the access key that ends in {tail}{until}"))
            }
            .boxed(),
        )
    }

    fn chain(&self) -> Arc<Chain> {
        Chain::shared(self.region.as_deref())
    }

    fn mend(&self, why: &CredentialsFault) -> String {
        let keys = format!("set {} in secrets/settings.yaml", self.settings);
        match why {
            CredentialsFault::NotFound(_) => {
                format!("give the instance a role, run `aws configure` or `aws sso login`, or {keys}")
            }
            CredentialsFault::Slow => format!("look at credential_process in ~/.aws/config, or {keys}"),
            CredentialsFault::Unusable(_) => {
                format!(
                    "renew them (`aws sso login` where the profile uses SSO), mend ~/.aws/config, or {keys}"
                )
            }
        }
    }
}

/// Signs requests of a protocol that is not Amazon's own.
struct Signer {
    identity: Identity,
    service: String,
    clock: Arc<dyn Clock>,
}

/// Whether requests to a provider are signed where it has no key.
pub(super) fn signs(provider: &Provider) -> bool {
    provider.sigv4.is_some() || provider.runtime == "bedrock-mantle"
}

/// Who signs requests to the provider at `url`.
pub(super) fn signer(
    provider: &Provider,
    url: &Url,
    secret: SecretLookup<'_>,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Sign>, BuildError> {
    let identity = Identity::of(provider, url, secret)?;
    let service = provider.sigv4.as_ref().and_then(|given| given.service.clone());
    let service = service.unwrap_or_else(|| SERVICE.to_owned());
    Ok(Arc::new(Signer { identity, service, clock: Arc::clone(clock) }))
}

impl Sign for Signer {
    fn sign<'a>(
        &'a self,
        url: &'a Url,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> BoxFuture<'a, Result<HeaderMap, ModelError>> {
        async move {
            let credentials = self.identity.credentials().await?;
            let scope = sign::Scope { service: self.service.clone(), region: self.identity.region().await? };
            sign::headers(&credentials, &scope, self.clock.now_ms(), url.as_str(), headers, body)
                .map_err(|why| plain(ErrorKind::Fatal, why))
        }
        .boxed()
    }

    fn refused(&self, error: ModelError) -> ModelError {
        let region = self.identity.region.as_deref().unwrap_or_default();
        let error = fault::judge_http(error, &self.identity.about("", region));
        self.identity.learn(error)
    }
}
