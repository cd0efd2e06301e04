//! What a refusal of Amazon means: the name of the error, else its words, to an [`ErrorKind`], what happened, and the
//! mend. Names: the errors that the API of Bedrock lists, and those common to all of Amazon's APIs.

use crate::model::{ErrorKind, ModelError, error};
use crate::text;
use std::time::Duration;

/// How many characters of Amazon's own words are shown.
const MAX_WORDS: usize = 1000;

/// A refusal as it came.
pub(in crate::model) struct Refusal<'a> {
    /// The error's name, such as `ThrottlingException`; empty where there was none.
    pub code: &'a str,
    /// Amazon's words.
    pub message: &'a str,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// How long to wait, where it was said.
    pub retry_after: Option<Duration>,
}

/// What was asked, and as whom.
pub(in crate::model) struct About<'a> {
    pub provider: &'a str,
    /// Empty where the asker does not know it.
    pub model: &'a str,
    /// Empty where the asker does not know it.
    pub region: &'a str,
    /// Whether the keys are from our settings, not from the credential chain.
    pub own_keys: bool,
}

impl About<'_> {
    fn named(&self) -> String {
        if self.model.is_empty() { "the model".to_owned() } else { format!("the model `{}`", self.model) }
    }
}

/// What it is, for the text and the mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Throttled,
    NotReady,
    Quota,
    StreamFailed,
    ModelFailed,
    ModelSlow,
    Internal,
    Unavailable,
    TooLong,
    NoPermission,
    NoModelAccess,
    Expired,
    UnknownKey,
    ClockOff,
    BadSignature,
    Unsigned,
    NoSuchModel,
    NeedsProfile,
}

use Fault::{
    BadSignature, ClockOff, Expired, Internal, ModelFailed, ModelSlow, NeedsProfile, NoModelAccess,
    NoPermission, NoSuchModel, NotReady, Quota, StreamFailed, Throttled, TooLong, Unavailable, UnknownKey,
    Unsigned,
};

/// Names that say all.
const NAMES: &[(&str, Fault)] = &[
    ("ThrottlingException", Throttled),
    ("ModelNotReadyException", NotReady),
    ("ServiceQuotaExceededException", Quota),
    ("ModelStreamErrorException", StreamFailed),
    ("ModelErrorException", ModelFailed),
    ("ModelTimeoutException", ModelSlow),
    ("InternalServerException", Internal),
    ("InternalFailure", Internal),
    ("ServiceUnavailableException", Unavailable),
    ("ExpiredTokenException", Expired),
    ("ExpiredToken", Expired),
    ("UnrecognizedClientException", UnknownKey),
    ("InvalidClientTokenId", UnknownKey),
    ("IncompleteSignatureException", Unsigned),
    ("MissingAuthenticationTokenException", Unsigned),
    ("ResourceNotFoundException", NoSuchModel),
];

/// Words, in small letters, that say it where the name says too little.
const WORDS: &[(&str, Fault)] = &[
    ("input is too long", TooLong),
    ("prompt is too long", TooLong),
    ("too many input tokens", TooLong),
    ("on-demand throughput", NeedsProfile),
    ("model identifier is invalid", NoSuchModel),
    ("token included in the request is expired", Expired),
    ("token included in the request is invalid", UnknownKey),
    ("signature expired", ClockOff),
    ("signature not yet current", ClockOff),
    ("request signature we calculated does not match", BadSignature),
    ("missing authentication token", Unsigned),
    ("not authorized to perform", NoPermission),
    ("have access to the model", NoModelAccess),
];

impl Fault {
    fn of(refusal: &Refusal<'_>) -> Option<Self> {
        let lower = refusal.message.to_ascii_lowercase();
        let by_words = || WORDS.iter().find(|(words, _)| lower.contains(words)).map(|(_, fault)| *fault);
        let by_name = NAMES.iter().find(|(name, _)| *name == refusal.code).map(|(_, fault)| *fault);
        by_name.or_else(by_words).or(match refusal.code {
            "AccessDeniedException" => Some(NoModelAccess),
            "InvalidSignatureException" | "SignatureDoesNotMatch" => Some(BadSignature),
            _ => None,
        })
    }

    fn kind(self) -> ErrorKind {
        match self {
            Throttled => ErrorKind::Throttle,
            NotReady | StreamFailed | ModelFailed | ModelSlow | Internal | Unavailable => ErrorKind::Server,
            TooLong => ErrorKind::ContextOverflow,
            NoPermission | NoModelAccess | Expired | UnknownKey | ClockOff | BadSignature | Unsigned => {
                ErrorKind::Account
            }
            Quota | NoSuchModel | NeedsProfile => ErrorKind::Fatal,
        }
    }

    fn what(self, about: &About<'_>) -> String {
        match self {
            Throttled => "Amazon throttles this account: too many requests or tokens".into(),
            NotReady => "the model is not ready yet".into(),
            Quota => "a quota of the AWS account is used up".into(),
            StreamFailed => "the model failed in the middle of its answer".into(),
            ModelFailed => "the model failed".into(),
            ModelSlow => "the model took too long".into(),
            Internal => "Amazon had an error of its own".into(),
            Unavailable => "the service is not available for the moment".into(),
            TooLong => "the conversation is longer than the model takes".into(),
            NoPermission => "the credentials may not call the model".into(),
            NoModelAccess => format!("the AWS account has no access to {}", about.named()),
            Expired => "the AWS credentials have expired".into(),
            UnknownKey => "Amazon does not know the access key".into(),
            ClockOff => "Amazon refuses the signature for its time".into(),
            BadSignature => "Amazon refuses the signature".into(),
            Unsigned => "the request came to Amazon without its signature".into(),
            NoSuchModel => format!("Amazon does not know {}{}", about.named(), within(about.region)),
            NeedsProfile => format!("{} is called through an inference profile only", about.named()),
        }
    }

    fn mend(self, about: &About<'_>) -> Option<String> {
        let provider = about.provider;
        let region = Some(about.region).filter(|region| !region.is_empty());
        let profiles = || {
            let list = region.map_or_else(String::new, |region| format!(" --region {region}"));
            format!(
                "take the id of an inference profile, such as `global.anthropic.claude-sonnet-4-6` or one that begins with \
                 `us.`, `eu.` or `apac.` (`aws bedrock list-inference-profiles{list}`)"
            )
        };
        Some(match self {
            Quota => "ask for more in the AWS console under Service Quotas".into(),
            NoPermission => {
                "allow `bedrock:InvokeModelWithResponseStream` to the user or role, on the inference profile and on the \
                 model in every region of the profile"
                    .into()
            }
            NoModelAccess => {
                format!("ask for it in the console of Amazon Bedrock under Model access{}", within(about.region))
            }
            Expired if about.own_keys => format!(
                "set new `{provider}.secrets.access_key_id`, `secret_access_key` and `session_token`, or take them away to \
                 use the credential chain"
            ),
            Expired => "renew them (`aws sso login`, or new keys in the environment or the profile)".into(),
            UnknownKey if about.own_keys => format!(
                "correct `{provider}.secrets.access_key_id`; keys that begin with ASIA also need `session_token`"
            ),
            UnknownKey => {
                "correct the keys in the environment or the profile; keys that begin with ASIA also need a session token"
                    .into()
            }
            ClockOff => "set the clock of this machine (NTP)".into(),
            BadSignature if about.own_keys => {
                format!("`{provider}.secrets.secret_access_key` does not belong to `access_key_id`, or a proxy changes requests")
            }
            BadSignature => "the secret key does not belong to the access key, or a proxy changes requests".into(),
            Unsigned => "a proxy takes the `authorization` header away; let it pass".into(),
            NoSuchModel => format!("{}, or an endpoint in a region that has the model", profiles()),
            NeedsProfile => profiles(),
            Throttled | NotReady | StreamFailed | ModelFailed | ModelSlow | Internal | Unavailable | TooLong => return None,
        })
    }
}

fn within(region: &str) -> String {
    if region.is_empty() { String::new() } else { format!(" in {region}") }
}

/// The error for a refusal. One that is not known by name or words is judged as those of other providers are.
pub(in crate::model) fn judge(refusal: &Refusal<'_>, about: &About<'_>) -> ModelError {
    let Refusal { status, retry_after, .. } = *refusal;
    let words = text::head_chars(shown(refusal.message), MAX_WORDS);
    let named = match (refusal.code, status) {
        ("", None) => String::new(),
        ("", Some(status)) => format!(" ({status})"),
        (code, None) => format!(" ({code})"),
        (code, Some(status)) => format!(" ({code}, {status})"),
    };
    let said = if words.is_empty() { named } else { format!("{named}: {words}") };
    let (kind, message) = match Fault::of(refusal) {
        Some(fault) => {
            let mend = fault.mend(about).map_or_else(String::new, |mend| format!("; {mend}"));
            (fault.kind(), format!("{}{said}{mend}", fault.what(about)))
        }
        None => (error::kind_of(status, refusal.code, refusal.message), format!("API error{said}")),
    };
    ModelError { kind, status, message, retry_after, fault: None }
}

/// Amazon's words up to where it repeats the request as it should have been signed, the session's token with it.
fn shown(message: &str) -> &str {
    message.split_once("The Canonical String").map_or(message, |(words, _)| words).trim()
}

/// The same for an error of a protocol over HTTP, which keeps its own words and status.
pub(in crate::model) fn judge_http(mut error: ModelError, about: &About<'_>) -> ModelError {
    let refusal = Refusal { code: "", message: &error.message, status: None, retry_after: None };
    let words = shown(&error.message);
    error.message = match Fault::of(&refusal).filter(|fault| fault.kind() == error.kind) {
        Some(fault) => {
            let mend = fault.mend(about).map_or_else(String::new, |mend| format!("; {mend}"));
            format!("{}: {words}{mend}", fault.what(about))
        }
        None => words.to_owned(),
    };
    error
}
