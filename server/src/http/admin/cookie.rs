//! The admin's cookie: a JWT (HS256) that says when it was made and when it ends, nothing else. Making it, reading
//! it from a request, and the `Set-Cookie` lines. A token with a `scope` was made for something smaller and never
//! counts.

use axum::http::{HeaderMap, HeaderValue, header};
use jsonwebtoken::errors::Error;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// The cookie's name.
const NAME: &str = "halo_token";
/// How long a cookie is good for: seconds.
const MAX_AGE: i64 = 14 * 24 * 60 * 60;
/// How old a cookie may become before the browser gets a new one: seconds.
const RENEW_AFTER: i64 = 24 * 60 * 60;
/// How many cookies of our name are looked at: a browser sends one for each path that one was set for.
const MAX_COOKIES: usize = 4;

/// Signs cookies, and tells its own from others. With an empty secret it does neither.
pub struct Signer {
    keys: Result<(EncodingKey, DecodingKey), Error>,
    validation: Validation,
}

/// A cookie that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Seconds since the epoch.
    issued_at: i64,
}

impl Session {
    /// Whether it is time for a new one.
    pub fn is_old(self, now_ms: i64) -> bool {
        now_ms / 1000 - self.issued_at > RENEW_AFTER
    }
}

impl Signer {
    /// A signer with this secret.
    pub fn new(secret: &SecretString) -> Self {
        let secret = secret.expose_secret().as_bytes();
        let mut validation = Validation::new(Algorithm::HS256);
        // Times are compared below, with our own clock.
        validation.validate_exp = false;
        validation.required_spec_claims = HashSet::new();
        let keys = EncodingKey::from_secret(secret)
            .and_then(|encoding| Ok((encoding, DecodingKey::from_secret(secret)?)));
        Self { keys, validation }
    }

    /// The session of the request, if it has one.
    pub fn session(&self, headers: &HeaderMap, now_ms: i64) -> Option<Session> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let ours = pairs.filter(|(name, _)| *name == NAME).take(MAX_COOKIES);
        ours.into_iter().find_map(|(_, jwt)| self.read(jwt, now_ms))
    }

    /// What a token says, if it is one of ours and has not ended.
    fn read(&self, jwt: &str, now_ms: i64) -> Option<Session> {
        let (_, key) = self.keys.as_ref().ok()?;
        let claims: Map<String, Value> = jsonwebtoken::decode(jwt, key, &self.validation).ok()?.claims;
        let time = |name: &str| claims.get(name).and_then(Value::as_i64);
        let (issued_at, end) = (time("iat")?, time("exp")?);
        (!claims.contains_key("scope") && now_ms / 1000 < end).then_some(Session { issued_at })
    }

    /// The `Set-Cookie` line of a new session.
    pub fn issue(&self, now_ms: i64, secure: bool) -> Result<HeaderValue, Error> {
        let (key, _) = self.keys.as_ref().map_err(Error::clone)?;
        let now = now_ms / 1000;
        let claims = json!({ "iat": now, "exp": now + MAX_AGE });
        let jwt = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, key)?;
        let secure = if secure { "; Secure" } else { "" };
        Ok(plain(&format!("{NAME}={jwt}; Max-Age={MAX_AGE}; Path=/; HttpOnly; SameSite=Lax{secure}")))
    }
}

/// The `Set-Cookie` line that takes the cookie away.
pub fn removal() -> HeaderValue {
    plain(&format!("{NAME}=; Max-Age=0; Path=/"))
}

/// Only for text that holds nothing but visible ASCII and blanks.
fn plain(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const NOW: i64 = 1_796_148_840_000;
    const DAY: i64 = 24 * 60 * 60 * 1000;

    fn signer() -> Signer {
        Signer::new(&"a-secret".into())
    }

    fn jwt(line: &HeaderValue) -> String {
        let text = line.to_str().unwrap();
        text.strip_prefix("halo_token=").unwrap().split(';').next().unwrap().to_owned()
    }

    fn signed(algorithm: Algorithm, claims: &Value) -> String {
        jsonwebtoken::encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(b"a-secret").unwrap())
            .unwrap()
    }

    #[test]
    fn a_cookie_is_good_for_14_days_and_due_for_renewal_after_one() {
        let line = signer().issue(NOW, false).unwrap();
        let jwt = jwt(&line);
        let expected = format!("halo_token={jwt}; Max-Age=1209600; Path=/; HttpOnly; SameSite=Lax");
        assert_eq!(line, expected);
        let session = signer().read(&jwt, NOW).unwrap();
        assert!(!session.is_old(NOW + DAY) && session.is_old(NOW + DAY + 1000));
        assert!(signer().read(&jwt, NOW + 14 * DAY - 1).is_some());
        assert!(signer().read(&jwt, NOW + 14 * DAY).is_none());
    }

    #[test]
    fn behind_tls_the_cookie_is_for_tls_alone() {
        let line = signer().issue(NOW, true).unwrap();
        assert!(line.to_str().unwrap().ends_with("; SameSite=Lax; Secure"), "{line:?}");
    }

    #[rstest]
    #[case(json!({ "iat": 1, "exp": 9_999_999_999_i64 }), true)]
    #[case(json!({ "iat": 1, "exp": 9_999_999_999_i64, "scope": "ext" }), false)]
    #[case(json!({ "iat": 1, "exp": 9_999_999_999_i64, "scope": null }), false)]
    #[case(json!({ "iat": 1 }), false)]
    #[case(json!({ "exp": 9_999_999_999_i64 }), false)]
    #[case(json!({ "iat": "1", "exp": "9999999999" }), false)]
    #[case(json!({ "iat": 1, "exp": 2 }), false)]
    fn only_a_token_without_a_scope_and_with_both_times_counts(#[case] claims: Value, #[case] counts: bool) {
        assert_eq!(signer().read(&signed(Algorithm::HS256, &claims), NOW).is_some(), counts);
    }

    #[test]
    fn an_empty_secret_signs_nothing_and_admits_nobody() {
        let empty = Signer::new(&"".into());
        assert!(empty.issue(NOW, false).is_err());
        assert!(empty.read(&jwt(&signer().issue(NOW, false).unwrap()), NOW).is_none());
    }

    #[test]
    fn another_secret_another_algorithm_and_a_changed_token_do_not_count() {
        let claims = json!({ "iat": 1, "exp": 9_999_999_999_i64 });
        let good = signed(Algorithm::HS256, &claims);
        assert!(Signer::new(&"another".into()).read(&good, NOW).is_none());
        assert!(signer().read(&signed(Algorithm::HS512, &claims), NOW).is_none());
        let parts: Vec<&str> = good.split('.').collect();
        // {"alg":"none"}
        let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", parts[1]);
        for bad in ["", "a.b.c", "a", &unsigned, &format!("{}.{}.", parts[0], parts[1]), &format!("{good}x")]
        {
            assert!(signer().read(bad, NOW).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let jwt = jwt(&signer().issue(NOW, false).unwrap());
        let with = |lines: &[String]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, line.parse().unwrap());
            }
            signer().session(&headers, NOW).is_some()
        };
        assert!(with(&[format!("a=b; halo_token={jwt}; c=d")]));
        assert!(with(&["a=b".into(), format!("halo_token={jwt}")]));
        assert!(with(&[format!("halo_token=stale; halo_token={jwt}")]));
        assert!(!with(&[format!("xhalo_token={jwt}")]));
        assert!(!with(&["halo_token".into()]));
        assert!(!with(&[]));
    }
}
