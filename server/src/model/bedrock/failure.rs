//! Errors of the SDK as errors of a model: what the service refused, what broke on the way, what the stream brought.

use super::Call;
use crate::model::aws::fault::Refusal;
use crate::model::error::{self, plain};
use crate::model::transport::strike;
use crate::model::{ErrorKind, ModelError};
use crate::net::aws::http::HttpFault;
use crate::net::causes;
use aws_sdk_bedrockruntime::config::Credentials;
use aws_sdk_bedrockruntime::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_bedrockruntime::operation::invoke_model_with_response_stream::InvokeModelWithResponseStreamError;
use aws_sdk_bedrockruntime::types::error::ResponseStreamError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::event_stream::RawMessage;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::error::Error;

impl Call {
    /// The error for a call that did not get as far as a stream.
    pub(super) fn refused(
        &self,
        why: &SdkError<InvokeModelWithResponseStreamError, HttpResponse>,
        region: &str,
        credentials: &Credentials,
    ) -> ModelError {
        let raw = why.raw_response();
        let status = raw.map(|response| response.status().as_u16());
        let refusal =
            why.as_service_error().filter(|refusal| refusal.code().is_some() || refusal.message().is_some());
        let error = match (refusal, status) {
            (Some(refusal), status) => {
                let refusal = Refusal {
                    code: refusal.code().unwrap_or_default(),
                    message: refusal.message().unwrap_or_default(),
                    status,
                    retry_after: raw.and_then(|response| self.wait(response)),
                };
                self.identity.refused(&refusal, &self.model, region)
            }
            // Not in Amazon's words: something in between answers.
            (None, Some(status)) if status >= 300 => {
                let body = raw.and_then(|response| response.body().bytes()).unwrap_or_default();
                error::from_response(
                    status,
                    &String::from_utf8_lossy(body),
                    raw.and_then(|response| self.wait(response)),
                )
            }
            _ => broken(why),
        };
        self.struck(error, credentials)
    }

    /// The error for a stream that does not go on.
    pub(super) fn cut(
        &self,
        why: &SdkError<ResponseStreamError, RawMessage>,
        credentials: &Credentials,
    ) -> ModelError {
        let error = match why {
            SdkError::ServiceError(refusal) => {
                self.identity.refused(&in_stream(refusal.err()), &self.model, "")
            }
            _ => broken(why),
        };
        self.struck(error, credentials)
    }

    fn wait(&self, response: &HttpResponse) -> Option<std::time::Duration> {
        let mut headers = HeaderMap::new();
        for name in ["retry-after", "retry-after-ms"] {
            if let Some(value) = response.headers().get(name)
                && let Ok(value) = HeaderValue::from_str(value)
            {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        error::retry_after(&headers, self.clock.as_ref())
    }

    /// Names the provider, and takes out what nobody may read.
    fn struck(&self, mut error: ModelError, credentials: &Credentials) -> ModelError {
        let secrets = [Some(credentials.secret_access_key()), credentials.session_token()];
        for secret in secrets.into_iter().flatten() {
            error.message = strike(error.message, secret);
        }
        self.named(error)
    }
}

/// An exception within the stream. Its name stands in the frame's head, which the SDK turns into a type.
fn in_stream(error: &ResponseStreamError) -> Refusal<'_> {
    let code = match error {
        ResponseStreamError::InternalServerException(_) => "InternalServerException",
        ResponseStreamError::ModelStreamErrorException(_) => "ModelStreamErrorException",
        ResponseStreamError::ModelTimeoutException(_) => "ModelTimeoutException",
        ResponseStreamError::ServiceUnavailableException(_) => "ServiceUnavailableException",
        ResponseStreamError::ThrottlingException(_) => "ThrottlingException",
        ResponseStreamError::ValidationException(_) => "ValidationException",
        _ => error.code().unwrap_or_default(),
    };
    Refusal { code, message: error.message().unwrap_or_default(), status: None, retry_after: None }
}

/// Neither an answer nor a refusal.
fn broken<E: Error + 'static, R: std::fmt::Debug + 'static>(why: &SdkError<E, R>) -> ModelError {
    match (HttpFault::within(why), why) {
        (Some(fault @ HttpFault::TooLarge), _) => plain(ErrorKind::Fatal, fault.to_string()),
        (Some(fault), _) => plain(ErrorKind::Network, fault.to_string()),
        // Nothing went out, so nothing else would the next time.
        (None, SdkError::ConstructionFailure(_)) => {
            plain(ErrorKind::Fatal, format!("the request cannot be made: {}", causes(why)))
        }
        (None, _) => plain(ErrorKind::Network, format!("the stream is broken: {}", causes(why))),
    }
}
