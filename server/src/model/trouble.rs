//! What a failed call tells a person who sets a provider up: which part is wrong, and the mend. For a person only;
//! whether a call is made again is decided by [`super::ErrorKind`].

use super::{ErrorKind, ModelError};
use crate::net::Fault;

/// The part that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The name of the host has no address.
    Dns,
    /// Nobody listens at the address.
    Refused,
    /// No way leads to the address, or what answers is no server of models.
    Unreachable,
    /// The encrypted connection.
    Tls,
    /// No connection, or no answer, in time.
    Timeout,
    /// The connection broke.
    Cut,
    /// The key is not known (401).
    Key,
    /// The key is known and may not do this (403).
    Permission,
    /// Nothing is left to pay with (402).
    Balance,
    /// There is no such model.
    ModelName,
    /// There is no such path.
    Path,
    /// Too many calls for now (429).
    Throttled,
    /// The provider's own fault (5xx).
    Provider,
    /// The call came through, and its answer holds nothing.
    Empty,
    /// Something else; the provider's words say what.
    Other,
}

const BALANCE: &[&str] = &[
    "insufficient balance",
    "insufficient_balance",
    "insufficient_quota",
    "credit balance is too low",
    "exceeded your current quota",
    "arrearage",
    "billing_error",
    "payment required",
    "余额",
    "欠费",
];
const NO_KEY: &[&str] = &[
    "invalid api key",
    "invalid_api_key",
    "api key not valid",
    "incorrect api key",
    "invalid x-api-key",
    "authentication_error",
];
const NO_MODEL: &[&str] = &[
    "not found",
    "not_found",
    "not exist",
    "does not support",
    "no such model",
    "unknown model",
    "invalid model",
    "model_not_supported",
    "not supported",
    "not available",
];

impl Trouble {
    /// The part that is wrong, as far as the error tells.
    pub fn of(error: &ModelError) -> Self {
        match error.fault {
            Some(Fault::NoName) => return Self::Dns,
            Some(Fault::Refused) => return Self::Refused,
            Some(Fault::Unreachable) => return Self::Unreachable,
            Some(Fault::Tls) => return Self::Tls,
            Some(Fault::TimedOut | Fault::Silent) => return Self::Timeout,
            Some(Fault::Cut) => return Self::Cut,
            Some(Fault::Other) => return Self::Other,
            None => {}
        }
        let words = error.message.to_lowercase();
        let says = |list: &[&str]| list.iter().any(|word| words.contains(word));
        let no_model = || (words.contains("model") && says(NO_MODEL)) || words.contains("模型不存在");
        match (error.status, error.kind) {
            (Some(402), _) => Self::Balance,
            _ if says(BALANCE) => Self::Balance,
            (Some(401), _) => Self::Key,
            (Some(400 | 403 | 404 | 422) | None, ErrorKind::Fatal | ErrorKind::Account) if no_model() => {
                Self::ModelName
            }
            (Some(403), _) => Self::Permission,
            (Some(404 | 405 | 300..400), _) => Self::Path,
            (Some(429), _) | (_, ErrorKind::Throttle) => Self::Throttled,
            (_, ErrorKind::Account) => Self::Key,
            _ if says(NO_KEY) => Self::Key,
            (_, ErrorKind::Server) => Self::Provider,
            (_, ErrorKind::EmptyResponse) => Self::Empty,
            (None, ErrorKind::Fatal) if words.contains("web page") => Self::Path,
            _ => Self::Other,
        }
    }

    /// The part in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dns => "DNS",
            Self::Refused => "connection refused",
            Self::Unreachable => "network",
            Self::Tls => "TLS",
            Self::Timeout => "timeout",
            Self::Cut => "connection cut",
            Self::Key => "key",
            Self::Permission => "permission",
            Self::Balance => "balance",
            Self::ModelName => "model name",
            Self::Path => "endpoint path",
            Self::Throttled => "throttled",
            Self::Provider => "provider",
            Self::Empty => "empty answer",
            Self::Other => "refused",
        }
    }

    /// What to do about it, as a clause that can follow the name; the place of key and endpoint are the caller's.
    pub fn mend(self) -> &'static str {
        match self {
            Self::Dns => {
                "the host of the endpoint has no address: look for a typing error, and at DNS and proxy of this machine"
            }
            Self::Refused => {
                "nobody listens there: start the server, or correct host and port of the endpoint"
            }
            Self::Unreachable => {
                "no way leads there: look at the network, the firewall and the proxy of this machine"
            }
            Self::Tls => {
                "no trusted TLS there: look at http or https in the endpoint, at this machine's certificates and clock, and at what inspects its traffic"
            }
            Self::Timeout => {
                "no answer in time: look at network and proxy, or give the provider longer with --timeout"
            }
            Self::Cut => {
                "the connection broke before the answer was whole: try again; if it stays so, look at the proxy and at the provider's status page"
            }
            Self::Key => {
                "the provider does not know the key: copy it anew, and see that it belongs to this endpoint"
            }
            Self::Permission => {
                "the key may not do this: look at its rights, and at the regions and models that the account may use"
            }
            Self::Balance => "the account has nothing left to pay with: top it up",
            Self::ModelName => {
                "there is no such model for this key: correct its id, or choose another with --model"
            }
            Self::Path => {
                "there is no such path: the endpoint is the base address, mostly with its version, such as https://host/v1"
            }
            Self::Throttled => "too many calls for now: wait, or raise the account's limits",
            Self::Provider => {
                "the provider has trouble of its own: try again later, and look at its status page"
            }
            Self::Empty => {
                "the call came through, but its answer holds nothing: try another model, and see that `runtime:` is the protocol that this endpoint speaks"
            }
            Self::Other => {
                "the provider's words say why; see also that `runtime:` is the protocol that this endpoint speaks"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::{from_response, plain};
    use rstest::rstest;

    #[rstest]
    #[case(401, r#"{"error":{"message":"Incorrect API key provided"}}"#, Trouble::Key)]
    #[case(400, r#"{"error":{"message":"API key not valid. Please pass a valid API key."}}"#, Trouble::Key)]
    #[case(402, r#"{"error":{"message":"x"}}"#, Trouble::Balance)]
    #[case(403, r#"{"error":{"message":"not in your region"}}"#, Trouble::Permission)]
    #[case(
        400,
        r#"{"error":{"message":"Your credit balance is too low to access the API."}}"#,
        Trouble::Balance
    )]
    #[case(429, r#"{"error":{"code":"insufficient_quota"}}"#, Trouble::Balance)]
    #[case(429, r#"{"error":{"message":"slow down"}}"#, Trouble::Throttled)]
    #[case(404, r#"{"error":{"type":"not_found_error","message":"model: claude-nine"}}"#, Trouble::ModelName)]
    #[case(
        404,
        r#"{"error":{"message":"The model `x` does not exist or you do not have access to it."}}"#,
        Trouble::ModelName
    )]
    #[case(
        403,
        r#"{"error":{"message":"Project does not have access to model x: model_not_found"}}"#,
        Trouble::ModelName
    )]
    #[case(400, r#"{"error":{"message":"Invalid model name passed in model=x"}}"#, Trouble::ModelName)]
    #[case(404, r#"{"detail":"Not Found"}"#, Trouble::Path)]
    #[case(404, "", Trouble::Path)]
    #[case(405, r#"{"detail":"Method Not Allowed"}"#, Trouble::Path)]
    #[case(302, "", Trouble::Path)]
    #[case(529, r#"{"error":{"type":"overloaded_error"}}"#, Trouble::Provider)]
    #[case(400, r#"{"error":{"message":"max_tokens is too large"}}"#, Trouble::Other)]
    fn an_answer_tells_which_part_is_wrong(
        #[case] status: u16,
        #[case] body: &str,
        #[case] trouble: Trouble,
    ) {
        assert_eq!(Trouble::of(&from_response(status, body, None)), trouble);
    }

    #[rstest]
    #[case(Fault::NoName, Trouble::Dns)]
    #[case(Fault::Refused, Trouble::Refused)]
    #[case(Fault::Tls, Trouble::Tls)]
    #[case(Fault::TimedOut, Trouble::Timeout)]
    #[case(Fault::Silent, Trouble::Timeout)]
    #[case(Fault::Cut, Trouble::Cut)]
    fn a_connection_that_fails_is_no_matter_of_words(#[case] fault: Fault, #[case] trouble: Trouble) {
        let error = plain(ErrorKind::Network, "cannot connect to model.not-found.example:443");
        assert_eq!(Trouble::of(&ModelError { fault: Some(fault), ..error }), trouble);
    }

    #[test]
    fn a_web_page_points_to_the_path() {
        let error = plain(ErrorKind::Fatal, "the answer is a web page, not a stream of events");
        assert_eq!(Trouble::of(&error), Trouble::Path);
    }
}
