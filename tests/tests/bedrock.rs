//! Amazon Bedrock from the web channel to the frames of its stand-in: who is asked for credentials, what is tried again,
//! and what people are told.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::metadata::Metadata;
use halo_tests::model_server::bedrock::{Signed, event, exception, signed};
use halo_tests::model_server::reply::Reply;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::{Place, README};
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Frame, first, text_of};
use rstest::rstest;
use serde_json::json;
use std::time::{Duration, Instant};

const KEYS: &[(&str, &str)] = &[
    ("AWS_ACCESS_KEY_ID", "AKIDENVIRONMENT"),
    ("AWS_SECRET_ACCESS_KEY", "environment-secret"),
    ("AWS_REGION", "eu-west-1"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

fn launch(env: &[(&str, &str)]) -> Launch {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Launch { env, ..Launch::default() }
}

async fn stack(env: &[(&str, &str)]) -> (Server, ModelServer) {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::Bedrock);
    (Server::launch(place, launch(env)).await, model)
}

async fn turn(server: &Server, text: &str) -> Vec<Frame> {
    let client = server.client("full").await;
    let session = client.mint().await;
    client.turn(&session, text).await
}

fn error_of(frames: &[Frame]) -> &str {
    first(frames, "error")["error"].as_str().unwrap()
}

fn signer(model: &ModelServer) -> Signed {
    signed(&model.last_request().unwrap().headers).unwrap()
}

#[tokio::test]
async fn the_role_of_an_instance_runs_a_turn_with_a_tool_and_nothing_is_asked_before_it() {
    let metadata = Metadata::start("ASIAROLE").await.unwrap();
    let endpoint = metadata.endpoint();
    let (server, model) = stack(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint)]).await;
    assert_eq!(metadata.asked(), 0, "a start asks nobody");
    let frames = turn(&server, "TOOL file_read {\"path\":\"README.md\"}").await;
    let result = first(&frames, "tool_result")["result"].as_str().unwrap().to_owned();
    let marzipan = "The secret word is marzipan.";
    assert!(README.contains(marzipan) && result.contains(marzipan), "{result}");
    assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
    assert!(text_of(&frames).starts_with("result: "), "{frames:?}");
    let expected = Signed {
        key: "ASIAROLE".into(),
        region: "eu-north-1".into(),
        service: "bedrock".into(),
        token: Some("role-token".into()),
    };
    assert_eq!(signer(&model), expected);
    // What was found is kept.
    let asked = metadata.asked();
    turn(&server, "SAY again").await;
    assert_eq!(metadata.asked(), asked);
    assert!(!server.stderr().contains("role-secret") && !server.stderr().contains("role-token"));
}

#[tokio::test]
async fn credentials_that_were_refused_are_looked_for_anew() {
    let metadata = Metadata::start("ASIAOLD").await.unwrap();
    let endpoint = metadata.endpoint();
    let (server, model) = stack(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint)]).await;
    let expired = json!({"message": "The security token included in the request is expired"});
    model.push(Reply::status(403, &expired.to_string()).header("x-amzn-errortype", "ExpiredTokenException"));
    let frames = turn(&server, "SAY one").await;
    let told = error_of(&frames);
    assert!(told.contains("the AWS credentials have expired (ExpiredTokenException, 403)"), "{told}");
    assert!(told.contains("renew them (`aws sso login`, or new keys"), "{told}");
    assert_eq!(model.requests().len(), 1, "nothing is tried again");
    metadata.set_key("ASIANEW");
    assert_eq!(text_of(&turn(&server, "SAY two").await), "two");
    assert_eq!(signer(&model).key, "ASIANEW");
}

#[rstest]
#[case::environment(KEYS, "", "AKIDENVIRONMENT")]
#[case::profile(&[("AWS_PROFILE", "work"), ("AWS_EC2_METADATA_DISABLED", "true")], "", "AKIDPROFILE")]
#[case::settings(KEYS, "access_key_id: AKIDSETTINGS\n    secret_access_key: settings-secret", "AKIDSETTINGS")]
#[case::unset_variable(
    KEYS,
    "access_key_id: <<NOT_SET>>\n    secret_access_key: <<NOT_SET_EITHER>>",
    "AKIDENVIRONMENT"
)]
#[tokio::test]
async fn keys_are_taken_from_the_settings_else_from_the_chain(
    #[case] env: &[(&str, &str)],
    #[case] settings: &str,
    #[case] key: &str,
) {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::Bedrock);
    let aws = place.user_home().join(".aws");
    std::fs::create_dir(&aws).unwrap();
    let keys = "[work]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = profile-secret\n";
    std::fs::write(aws.join("credentials"), keys).unwrap();
    std::fs::write(aws.join("config"), "[profile work]\nregion = eu-west-1\n").unwrap();
    if !settings.is_empty() {
        let yaml = format!("aws-bedrock-claude-invoke:\n  secrets:\n    {settings}\n");
        place.private("secrets/settings.yaml", &yaml);
    }
    let server = Server::launch(place, launch(env)).await;
    assert_eq!(text_of(&turn(&server, "SAY yes").await), "yes");
    let signed = signer(&model);
    assert_eq!((signed.key.as_str(), signed.region.as_str()), (key, "eu-west-1"));
}

#[tokio::test]
async fn who_has_no_credentials_is_told_where_they_were_looked_for_and_what_to_do() {
    let (server, model) = stack(&[("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_REGION", "eu-west-1")]).await;
    let frames = turn(&server, "SAY one").await;
    let told = error_of(&frames);
    for part in [
        "aws-bedrock-claude-invoke: no AWS credentials were found",
        "AWS_ACCESS_KEY_ID",
        "profile `default`",
        "EC2 instance",
        "give the instance a role",
        "`aws-bedrock-claude-invoke.secrets.access_key_id`",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn a_metadata_service_that_does_not_answer_holds_nobody_up_for_long() {
    // Takes connections and says nothing.
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let env = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.as_str()), ("AWS_REGION", "eu-west-1")];
    let (server, _model) = stack(&env).await;
    let begin = Instant::now();
    let frames = turn(&server, "SAY one").await;
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert!(error_of(&frames).contains("no AWS credentials"), "{}", error_of(&frames));
}

#[tokio::test]
async fn credentials_that_are_set_up_and_do_not_come_are_told_with_their_reason() {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::Bedrock);
    std::fs::create_dir(place.user_home().join(".aws")).unwrap();
    let config =
        "[profile lost]\nregion = eu-west-1\ncredential_process = sh -c 'echo vault is locked >&2; exit 3'\n";
    std::fs::write(place.user_home().join(".aws/config"), config).unwrap();
    let env = [("AWS_PROFILE", "lost"), ("AWS_EC2_METADATA_DISABLED", "true")];
    let server = Server::launch(place, launch(&env)).await;
    let frames = turn(&server, "SAY one").await;
    let told = error_of(&frames);
    assert!(
        told.contains("the AWS credentials cannot be used: ") && told.contains("vault is locked"),
        "{told}"
    );
    assert!(told.contains("mend ~/.aws/config"), "{told}");
}

#[tokio::test]
async fn throttling_before_and_in_the_stream_is_tried_again_and_the_turn_succeeds() {
    let (server, model) = stack(KEYS).await;
    let slow = json!({"message": "Too many requests, please wait before trying again."});
    let throttled = Reply::status(429, &slow.to_string()).header("x-amzn-errortype", "ThrottlingException");
    model.push(throttled.header("retry-after-ms", "5"));
    let begun = event(&json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}));
    model.push(Reply::chunks([begun, exception("throttlingException", "Too many tokens")]));
    let frames = turn(&server, "SAY at last").await;
    assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
    assert_eq!(text_of(&frames), "at last");
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn a_model_without_access_is_told_with_the_mend_and_not_tried_again() {
    let (server, model) = stack(KEYS).await;
    let denied = json!({"message": "You don't have access to the model with the specified model ID."});
    model.push(Reply::status(403, &denied.to_string()).header("x-amzn-errortype", "AccessDeniedException"));
    let frames = turn(&server, "SAY one").await;
    let told = error_of(&frames);
    assert!(told.contains("has no access to the model `global.anthropic.claude-sonnet-4-6`"), "{told}");
    assert!(told.contains("under Model access in eu-west-1"), "{told}");
    assert_eq!(model.requests().len(), 1);
    assert!(!told.contains("environment-secret") && !server.stderr().contains("environment-secret"));
}

#[rstest]
#[case::found(
    KEYS,
    Some(0),
    "ok      aws        aws-bedrock-claude-invoke: AWS credentials found, for eu-west-1: the access key that ends in MENT"
)]
#[case::none(&[("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_REGION", "eu-west-1")], Some(1), "BROKEN  aws        aws-bedrock-claude-invoke: no AWS credentials were found")]
#[tokio::test]
async fn doctor_tells_whether_there_are_credentials(
    #[case] env: &[(&str, &str)],
    #[case] code: Option<i32>,
    #[case] line: &str,
) {
    let place = Place::new();
    let mut command = place.halo(["doctor"]);
    command.env("HALO_DEFAULT_PROVIDER", "aws-bedrock-claude-invoke");
    // The address of the built-in provider names a region of its own.
    let file = "id: aws-bedrock-claude-invoke\nruntime: bedrock-invoke\nmodels: [{ id: m }]\n\
                defaultEndpoint: http://127.0.0.1:1\nsecrets: [{ key: access_key_id, secret: true }]\n";
    place.private("global/models/aws-bedrock-claude-invoke.yaml", file);
    command.envs(env.iter().copied());
    let ended = halo_tests::place::Ended::of(command).await;
    assert_eq!(ended.code, code, "{ended:?}");
    assert!(ended.stdout.contains(line), "{ended:?}");
    assert!(!format!("{ended:?}").contains("environment-secret"), "{ended:?}");
}

#[tokio::test]
async fn a_test_call_without_credentials_says_what_to_do_once() {
    let place = Place::new();
    let mut command = place.halo(["model", "test", "aws-bedrock-claude-invoke"]);
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    let ended = halo_tests::place::Ended::of(command).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let expected = "key: aws-bedrock-claude-invoke: no AWS credentials were found";
    assert!(
        ended.stderr.contains(expected) && ended.stderr.contains("give the instance a role"),
        "{ended:?}"
    );
    assert!(!ended.stderr.contains("copy it anew"), "there is no key to be copied: {ended:?}");
}

#[tokio::test]
async fn doctor_asks_nobody_when_no_such_provider_is_in_use() {
    let metadata = Metadata::start("ASIAROLE").await.unwrap();
    let place = Place::new();
    let mut command = place.halo(["doctor"]);
    command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.endpoint());
    let ended = halo_tests::place::Ended::of(command).await;
    assert!(!ended.stdout.contains("aws"), "{ended:?}");
    assert_eq!(metadata.asked(), 0);
}

#[tokio::test]
async fn a_provider_of_amazon_answers_by_default_only_where_it_is_named_or_has_keys() {
    let place = Place::fresh();
    place.private("secrets/config.yaml", "server:\n  jwt_secret: a-secret-for-tests-only-0123456789\n");
    let doctor = |place: &Place, named: bool| {
        let mut command = place.halo(["doctor"]);
        command.envs(KEYS.iter().copied());
        if named {
            command.env("HALO_DEFAULT_PROVIDER", "aws-bedrock-claude-invoke");
        }
        halo_tests::place::Ended::of(command)
    };
    let found = |stdout: &str| {
        stdout.contains("aws-bedrock-claude-invoke (global.anthropic.claude-sonnet-4-6) answers")
    };
    let ended = doctor(&place, false).await;
    assert!(ended.stdout.contains("the demo model answers") && !found(&ended.stdout), "{ended:?}");
    let ended = doctor(&place, true).await;
    assert!(found(&ended.stdout), "{ended:?}");
    let half = "aws-bedrock-claude-invoke:\n  secrets:\n    access_key_id: AKIDSETTINGS\n";
    place.private("secrets/settings.yaml", half);
    assert!(!found(&doctor(&place, false).await.stdout));
    place.private("secrets/settings.yaml", &format!("{half}    secret_access_key: s\n"));
    assert!(found(&doctor(&place, false).await.stdout));
}
