//! Signature Version 4 for one request, in its headers.

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign as sign_request};
use aws_sigv4::sign::v4;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::{Duration, UNIX_EPOCH};

/// What is signed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The service's name in signatures, such as `bedrock`.
    pub service: String,
    /// The region.
    pub region: String,
}

/// The headers that a `POST` of `body` to `url` needs beside those that it has: date, signature, and the session's
/// token. Of `headers` those are signed that no proxy changes. `now_ms` are milliseconds since 1970. Fails for an
/// address that no signature can stand for.
pub fn headers(
    credentials: &Credentials,
    scope: &Scope,
    now_ms: i64,
    url: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<HeaderMap, String> {
    let fault = |why: &dyn std::fmt::Display| format!("the request cannot be signed: {why}");
    let identity = credentials.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .name(&scope.service)
        .region(&scope.region)
        .time(UNIX_EPOCH + Duration::from_millis(now_ms.unsigned_abs()))
        .settings(SigningSettings::default())
        .build()
        .map_err(|why| fault(&why))?
        .into();
    let given = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let request =
        SignableRequest::new("POST", url, given, SignableBody::Bytes(body)).map_err(|why| fault(&why))?;
    let (instructions, _) = sign_request(request, &params).map_err(|why| fault(&why))?.into_parts();
    let mut signed = HeaderMap::new();
    for (name, text) in instructions.headers() {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|why| fault(&why))?;
        let mut value = HeaderValue::from_str(text).map_err(|why| fault(&why))?;
        value.set_sensitive(true);
        signed.insert(name, value);
    }
    Ok(signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(secret: &str, token: Option<&str>, body: &[u8]) -> HeaderMap {
        let credentials = Credentials::new("AKIDEXAMPLE", secret, token.map(str::to_owned), None, "test");
        let scope = Scope { service: "bedrock".into(), region: "us-east-1".into() };
        let mut given = HeaderMap::new();
        given.insert("content-type", HeaderValue::from_static("application/json"));
        let url = "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1/responses";
        headers(&credentials, &scope, 1_440_938_160_000, url, &given, body).unwrap()
    }

    #[test]
    fn the_signature_names_key_day_region_and_service_and_what_it_covers() {
        let signed = sign("secret", Some("session"), b"{}");
        let text = |name: &str| signed[name].to_str().unwrap().to_owned();
        assert_eq!(text("x-amz-date"), "20150830T123600Z");
        assert_eq!(text("x-amz-security-token"), "session");
        let begin = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/bedrock/aws4_request, \
                     SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=";
        assert!(text("authorization").starts_with(begin), "{}", text("authorization"));
        assert!(!format!("{signed:?}").contains("session"), "{signed:?}");
    }

    #[test]
    fn another_body_or_secret_is_another_signature() {
        let one = sign("secret", None, b"{}")["authorization"].clone();
        assert_eq!(one, sign("secret", None, b"{}")["authorization"]);
        assert_ne!(one, sign("secret", None, b"{ }")["authorization"]);
        assert_ne!(one, sign("other", None, b"{}")["authorization"]);
    }
}
