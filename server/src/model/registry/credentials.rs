//! As whom a provider is called: with its key, with a signature, or as nobody.

use super::connect::{connect, endpoint, key};
use super::{BuildError, CallSettings, Loaded, ModelChoice, Provider, Registry, Runtime, SecretLookup};
#[cfg(feature = "bedrock")]
use crate::model::aws;
use crate::model::transport::Endpoint;
use futures_util::future::BoxFuture;

impl Registry {
    /// Looks for the AWS credentials that a choice is called with, and tells in words what was found, or why nothing.
    /// `None`: it is called with a key of the settings, or with none. Waits at most 2 s.
    pub fn aws_credentials(
        &self,
        choice: &ModelChoice,
        secret: SecretLookup<'_>,
    ) -> Option<BoxFuture<'static, Result<String, String>>> {
        let Loaded { provider, runtime, .. } = self.load(&choice.provider).ok()?;
        let url = endpoint(&provider, choice, runtime).ok()?;
        #[cfg(feature = "bedrock")]
        if runtime == Runtime::BedrockInvoke || (aws::signs(&provider) && key(&provider, secret).is_err()) {
            return aws::Identity::of(&provider, &url, secret).ok()?.look();
        }
        let _ = (url, secret);
        None
    }
}

/// The address of a call, and as whom it is called: with the key, else with a signature where the provider takes one.
pub(super) fn enter(
    provider: &Provider,
    choice: &ModelChoice,
    runtime: Runtime,
    secret: SecretLookup<'_>,
    settings: &CallSettings,
) -> Result<Endpoint, BuildError> {
    let url = endpoint(provider, choice, runtime)?;
    #[cfg(feature = "bedrock")]
    if runtime == Runtime::BedrockInvoke {
        // The SDK signs.
        return connect(provider, url, None, runtime, settings);
    }
    match key(provider, secret) {
        #[cfg(feature = "bedrock")]
        Err(BuildError::MissingSecret { .. }) if aws::signs(provider) => {
            let signer = aws::signer(provider, &url, secret, &settings.clock)?;
            let endpoint = connect(provider, url, None, runtime, settings)?;
            Ok(Endpoint { signer: Some(signer), ..endpoint })
        }
        key => connect(provider, url, key?, runtime, settings),
    }
}

/// The secrets that a provider is called with; none: it needs none.
pub(super) fn keys(provider: &Provider) -> impl Iterator<Item = &str> {
    // Of AWS credentials the session's token is only a part of some.
    let several = if provider.runtime == "bedrock-invoke" { 2 } else { 1 };
    provider.secrets.iter().filter(|field| field.secret).map(|field| field.key.as_str()).take(several)
}
