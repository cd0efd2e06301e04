//! Bedrock: its frames, its refusals, its signatures; and signatures over the Responses API.

use super::{KEY, ask, build, model, request, run, text_block, texts, tool_calls, user};
use bytes::Bytes;
use halo_server::model::registry::{CacheTtl, Caching, CallSettings, ModelChoice, Registry, Thinking};
use halo_server::model::{Block, ErrorKind, Event, Model, ModelError, StopReason};
use halo_tests::model_server::bedrock::{Signed, event, exception, signed};
use halo_tests::model_server::reply::{Reply, Step};
use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use rstest::rstest;
use secrecy::SecretString;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// A model of a provider file, with these secrets.
fn of_file(id: &str, file: &str, endpoint: &str, secrets: &'static [(&str, &str)]) -> Arc<dyn Model> {
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join(format!("{id}.yaml")), file).unwrap();
    let choice = ModelChoice {
        provider: id.into(),
        id: "some-model".into(),
        endpoint: Some(endpoint.into()),
        ..ModelChoice::default()
    };
    let secret = |_: &str, key: &str| {
        let found = secrets.iter().find(|(known, _)| *known == key)?;
        Some(SecretString::from(found.1))
    };
    Registry::new(files.path().to_owned()).build(&choice, &secret, &CallSettings::default()).unwrap()
}

/// The error of a call that is answered with this.
async fn refused(reply: Reply) -> ModelError {
    let server = ModelServer::start().await.unwrap();
    server.push(reply);
    ask(model(&server, Protocol::Bedrock).as_ref(), "x").await.unwrap_err()
}

fn hello() -> Vec<Bytes> {
    let text = json!({"type": "text_delta", "text": "hello"});
    vec![
        event(&json!({"type": "message_start", "message": {"usage": {"input_tokens": 10}}})),
        event(
            &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
        event(&json!({"type": "content_block_delta", "index": 0, "delta": text})),
    ]
}

#[tokio::test]
async fn a_call_goes_to_the_models_address_signed_and_without_what_the_address_says() {
    let server = ModelServer::start().await.unwrap();
    let choice = ModelChoice {
        id: "global.anthropic.claude-x-v1:0".into(),
        max_tokens: Some(4000),
        prompt_caching: Some(Caching::For(CacheTtl::OneHour)),
        thinking: Some(Thinking { enabled: true, effort: Some("high".into()), budget_tokens: None }),
        ..ModelChoice::default()
    };
    let model = build(&server, Protocol::Bedrock, choice, Duration::from_secs(60));
    server.push(Script::text(["hello"]).thinking("because"));
    let (events, end) = run(model.as_ref(), request(vec![user("hi")])).await;
    assert_eq!(texts(&events), ["hello"]);
    assert!(events.contains(&Event::Thinking("because".into())), "{events:?}");
    let thinking = Block::Thinking { text: "because".into(), signature: Some("c2VhbA==".into()) };
    assert_eq!(end.unwrap().content, [thinking, text_block("hello")]);
    let sent = server.last_request().unwrap();
    assert_eq!(sent.path, "/model/global.anthropic.claude-x-v1%3A0/invoke-with-response-stream");
    let expected = Signed {
        key: KEY.into(),
        region: "us-west-2".into(),
        service: "bedrock".into(),
        token: Some(KEY.into()),
    };
    assert_eq!(signed(&sent.headers), Some(expected));
    assert_eq!(sent.headers["content-type"], "application/json");
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    assert_eq!(
        sent.body,
        json!({
            "anthropic_version": "bedrock-2023-05-31",
            "max_tokens": 4000,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "high"},
            "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
            "tools": [{"name": "file_read", "description": "Reads a file.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]}],
        })
    );
}

#[tokio::test]
async fn a_call_of_tools_comes_whole_wherever_the_bytes_are_parted() {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, Protocol::Bedrock);
    let script = Script::call("file_read", json!({"path": "ä"})).and_call("file_list", json!({}));
    for size in [1, 2, 7, 64, 4096] {
        server.push(Reply::chunks(all_bytes(&script).chunks(size)));
        let completion = ask(model.as_ref(), "x").await.unwrap();
        let names: Vec<_> =
            tool_calls(&completion).into_iter().map(|(_, name, input)| (name, input)).collect();
        assert_eq!(names, [("file_read", json!({"path": "ä"})), ("file_list", json!({}))]);
        assert_eq!(completion.stop, StopReason::ToolUse);
    }
}

fn all_bytes(script: &Script) -> Vec<u8> {
    script.bytes(Protocol::Bedrock)
}

#[tokio::test]
async fn a_stream_that_is_cut_at_any_byte_is_a_network_error() {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, Protocol::Bedrock);
    let whole = all_bytes(&Script::call("shell_exec", json!({"command": "rm x"})).thinking("t"));
    for length in 0..whole.len() {
        let reply = Reply::chunks([&whole[..length]]);
        // Every third without an orderly end of the body.
        server.push(if length % 3 == 0 { reply.then(Step::Cut) } else { reply });
        let error = ask(model.as_ref(), "x").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Network, "after {length} bytes: {error}");
    }
    server.push(Reply::chunks([&whole]).then(Step::Cut));
    assert_eq!(ask(model.as_ref(), "x").await.unwrap().stop, StopReason::ToolUse);
}

#[tokio::test]
async fn a_stream_with_a_wrong_bit_is_an_error() {
    let mut whole = all_bytes(&Script::text(["hello"]));
    let middle = whole.len() / 2;
    whole[middle] ^= 1;
    let error = refused(Reply::chunks([whole])).await;
    assert_eq!(error.kind, ErrorKind::Network, "{error}");
}

#[tokio::test]
async fn any_byte_of_a_frame_shows_that_the_model_is_alive() {
    let server = ModelServer::start().await.unwrap();
    let model = build(&server, Protocol::Bedrock, ModelChoice::default(), Duration::from_millis(600));
    // Longer in all than the limit, but never silent for as long.
    let whole = all_bytes(&Script::text(["ok"]));
    let mut reply = Reply::chunks([""; 0]);
    for piece in whole.chunks(whole.len().div_ceil(10)) {
        reply = reply.then(Step::Bytes(piece.to_vec().into())).then(Step::Wait(Duration::from_millis(100)));
    }
    server.push(reply);
    assert_eq!(ask(model.as_ref(), "x").await.unwrap().content, [text_block("ok")]);
}

/// A refusal as Bedrock sends it.
fn refusal(status: u16, name: &str, message: &str) -> Reply {
    Reply::status(status, &json!({"message": message}).to_string())
        .header("x-amzn-errortype", &format!("{name}:http://internal.amazon.com/coral/com.amazon.bedrock/"))
}

#[rstest]
#[case(
    429,
    "ThrottlingException",
    "Too many tokens, please wait before trying again.",
    ErrorKind::Throttle,
    "Amazon throttles this account: too many requests or tokens (ThrottlingException, 429): Too many tokens, please wait before trying again."
)]
#[case(
    429,
    "ModelNotReadyException",
    "Model is not ready for inference.",
    ErrorKind::Server,
    "the model is not ready yet (ModelNotReadyException, 429): Model is not ready for inference."
)]
#[case(
    424,
    "ModelErrorException",
    "odd",
    ErrorKind::Server,
    "the model failed (ModelErrorException, 424): odd"
)]
#[case(
    408,
    "ModelTimeoutException",
    "slow",
    ErrorKind::Server,
    "the model took too long (ModelTimeoutException, 408): slow"
)]
#[case(
    500,
    "InternalServerException",
    "oops",
    ErrorKind::Server,
    "Amazon had an error of its own (InternalServerException, 500): oops"
)]
#[case(
    503,
    "ServiceUnavailableException",
    "later",
    ErrorKind::Server,
    "the service is not available for the moment (ServiceUnavailableException, 503): later"
)]
#[case(
    400,
    "ServiceQuotaExceededException",
    "no",
    ErrorKind::Fatal,
    "a quota of the AWS account is used up (ServiceQuotaExceededException, 400): no; ask for more in the AWS console under Service Quotas"
)]
#[case(
    400,
    "ValidationException",
    "Input is too long for requested model.",
    ErrorKind::ContextOverflow,
    "the conversation is longer than the model takes (ValidationException, 400): Input is too long for requested model."
)]
#[case(
    400,
    "ValidationException",
    "messages.1: Could not process image",
    ErrorKind::BadImage,
    "API error (ValidationException, 400): messages.1: Could not process image"
)]
#[case(
    400,
    "ValidationException",
    "The provided model identifier is invalid.",
    ErrorKind::Fatal,
    "Amazon does not know the model `some-model` in us-west-2 (ValidationException, 400): The provided model identifier is invalid.; take the id of an inference profile"
)]
#[case(
    400,
    "ValidationException",
    "Invocation of model ID x with on-demand throughput isn\u{2019}t supported.",
    ErrorKind::Fatal,
    "the model `some-model` is called through an inference profile only"
)]
#[case(
    404,
    "ResourceNotFoundException",
    "Could not resolve the foundation model",
    ErrorKind::Fatal,
    "Amazon does not know the model `some-model` in us-west-2 (ResourceNotFoundException, 404)"
)]
#[case(
    403,
    "AccessDeniedException",
    "You don't have access to the model with the specified model ID.",
    ErrorKind::Account,
    "the AWS account has no access to the model `some-model` (AccessDeniedException, 403): You don't have access to the model with the specified model ID.; ask for it in the console of Amazon Bedrock under Model access in us-west-2"
)]
#[case(
    403,
    "AccessDeniedException",
    "User: arn:aws:iam::1:user/x is not authorized to perform: bedrock:InvokeModelWithResponseStream",
    ErrorKind::Account,
    "the credentials may not call the model (AccessDeniedException, 403)"
)]
#[case(
    403,
    "ExpiredTokenException",
    "The security token included in the request is expired",
    ErrorKind::Account,
    "the AWS credentials have expired (ExpiredTokenException, 403): The security token included in the request is expired; set new `bedrock.secrets.access_key_id`"
)]
#[case(
    403,
    "UnrecognizedClientException",
    "The security token included in the request is invalid.",
    ErrorKind::Account,
    "Amazon does not know the access key (UnrecognizedClientException, 403)"
)]
#[case(
    403,
    "InvalidSignatureException",
    "Signature expired: 20260101T000000Z is now earlier than 20260102T000000Z",
    ErrorKind::Account,
    "Amazon refuses the signature for its time (InvalidSignatureException, 403)"
)]
#[case(
    403,
    "InvalidSignatureException",
    "The request signature we calculated does not match the signature you provided. Check your key.\n\nThe Canonical String for this request should have been 'x-amz-security-token:hidden'",
    ErrorKind::Account,
    "Amazon refuses the signature (InvalidSignatureException, 403): The request signature we calculated does not match the signature you provided. Check your key.; `bedrock.secrets.secret_access_key` does not belong to `access_key_id`"
)]
#[tokio::test]
async fn a_refusal_says_what_it_is_and_how_to_mend_it(
    #[case] status: u16,
    #[case] name: &str,
    #[case] message: &str,
    #[case] kind: ErrorKind,
    #[case] text: &str,
) {
    let error = refused(refusal(status, name, message)).await;
    assert_eq!((error.kind, error.status), (kind, Some(status)), "{error}");
    assert!(error.message.starts_with(&format!("bedrock: {text}")), "{error}");
    assert!(!error.message.contains("hidden"), "{error}");
}

#[tokio::test]
async fn a_wait_that_amazon_asks_for_is_passed_on() {
    let error = refused(refusal(429, "ThrottlingException", "slow").header("retry-after", "7")).await;
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
}

#[rstest]
#[case(
    "throttlingException",
    ErrorKind::Throttle,
    "Amazon throttles this account: too many requests or tokens (ThrottlingException): odd"
)]
#[case(
    "modelStreamErrorException",
    ErrorKind::Server,
    "the model failed in the middle of its answer (ModelStreamErrorException): odd"
)]
#[case("modelTimeoutException", ErrorKind::Server, "the model took too long (ModelTimeoutException): odd")]
#[case(
    "internalServerException",
    ErrorKind::Server,
    "Amazon had an error of its own (InternalServerException): odd"
)]
#[case(
    "serviceUnavailableException",
    ErrorKind::Server,
    "the service is not available for the moment (ServiceUnavailableException): odd"
)]
#[case("validationException", ErrorKind::Fatal, "API error (ValidationException): odd")]
#[case("exceptionOfTomorrow", ErrorKind::Fatal, "API error: odd")]
#[tokio::test]
async fn an_exception_within_the_stream_ends_it(
    #[case] name: &str,
    #[case] kind: ErrorKind,
    #[case] text: &str,
) {
    let server = ModelServer::start().await.unwrap();
    let mut frames = hello();
    frames.push(exception(name, "odd"));
    server.push(Reply::chunks(frames));
    let (events, end) = run(model(&server, Protocol::Bedrock).as_ref(), request(vec![user("x")])).await;
    assert_eq!(texts(&events), ["hello"]);
    let error = end.unwrap_err();
    assert_eq!((error.kind, error.message), (kind, format!("bedrock: {text}")));
}

#[tokio::test]
async fn an_error_event_of_the_model_ends_the_stream() {
    let mut frames = hello();
    frames.push(event(
        &json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ));
    let error = refused(Reply::chunks(frames)).await;
    assert_eq!(error.kind, ErrorKind::Server, "{error}");
    assert!(error.message.contains("Overloaded"), "{error}");
}

#[tokio::test]
async fn a_conversation_that_bedrock_would_refuse_for_its_size_is_not_sent() {
    let server = ModelServer::start().await.unwrap();
    let error = ask(model(&server, Protocol::Bedrock).as_ref(), &"x".repeat(33 << 20)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ContextOverflow, "{error}");
    assert!(error.message.contains("too many input tokens"), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn secrets_that_come_back_are_struck_out() {
    let error = refused(refusal(403, "AccessDeniedException", &format!("who is {KEY}?"))).await;
    assert!(error.message.contains("who is [key]?"), "{error}");
    assert!(!format!("{error:?}").contains(KEY), "{error:?}");
}

const KEYS: &[(&str, &str)] = &[("access_key_id", "AKIDSETTINGS"), ("secret_access_key", "a-secret")];

#[rstest]
#[case::by_the_file(
    "openai-responses",
    "sigv4: { service: bedrock, region: eu-west-1 }",
    "eu-west-1",
    "bedrock"
)]
#[case::by_the_runtime("bedrock-mantle", "sigv4: { region: eu-west-1 }", "eu-west-1", "bedrock")]
#[case::another_service(
    "openai-responses",
    "sigv4: { service: execute-api, region: us-east-2 }",
    "us-east-2",
    "execute-api"
)]
#[tokio::test]
async fn responses_without_a_key_are_signed(
    #[case] runtime: &str,
    #[case] sigv4: &str,
    #[case] region: &str,
    #[case] service: &str,
) {
    let file = format!(
        "id: p\nruntime: {runtime}\n{sigv4}\nsecrets: [{{ key: api_key, secret: true }}]\nmodels: [{{ id: some-model }}]\n"
    );
    let server = ModelServer::start().await.unwrap();
    let model = of_file("p", &file, &server.openai_endpoint(), KEYS);
    assert_eq!(ask(model.as_ref(), "x").await.unwrap().content, [text_block("ok")]);
    let expected =
        Signed { key: "AKIDSETTINGS".into(), region: region.into(), service: service.into(), token: None };
    assert_eq!(signed(&server.last_request().unwrap().headers), Some(expected));
    // A refusal of the signature says what to do about it.
    let body = json!({"message": "The security token included in the request is invalid."});
    server.push(Reply::status(403, &body.to_string()));
    let error = ask(model.as_ref(), "x").await.unwrap_err();
    assert_eq!((error.kind, error.status), (ErrorKind::Account, Some(403)));
    assert!(error.message.starts_with("p: Amazon does not know the access key: API error 403"), "{error}");
    assert!(error.message.contains("correct `p.secrets.access_key_id`"), "{error}");
}

#[tokio::test]
async fn a_key_goes_before_a_signature() {
    let file = "id: p\nruntime: bedrock-mantle\nsecrets: [{ key: api_key, secret: true }]\nmodels: [{ id: some-model }]\n";
    let server = ModelServer::start().await.unwrap();
    let model = of_file("p", file, &server.openai_endpoint(), &[("api_key", "bedrock-api-key-x")]);
    ask(model.as_ref(), "x").await.unwrap();
    assert_eq!(server.last_request().unwrap().headers["authorization"], "Bearer bedrock-api-key-x");
}

#[test]
fn one_key_without_the_other_names_the_missing_one() {
    for (given, missing) in [("access_key_id", "secret_access_key"), ("secret_access_key", "access_key_id")] {
        let secret = |_: &str, key: &str| (key == given).then(|| SecretString::from("x"));
        let choice = ModelChoice { provider: "aws-bedrock-claude-invoke".into(), ..ModelChoice::default() };
        let built = Registry::new("/nonexistent".into()).build(&choice, &secret, &CallSettings::default());
        let message = built.err().unwrap().to_string();
        assert!(message.contains(&format!("`aws-bedrock-claude-invoke.secrets.{missing}`")), "{message}");
    }
}
