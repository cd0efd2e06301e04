use super::connect::endpoint;
use super::*;
use rstest::rstest;
use std::fs;
use tempfile::TempDir;

fn with_file(name: &str, text: &str) -> (TempDir, Registry) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(name), text).unwrap();
    let registry = Registry::new(dir.path().to_owned());
    (dir, registry)
}

fn choice(provider: &str) -> ModelChoice {
    ModelChoice { provider: provider.into(), ..ModelChoice::default() }
}

#[allow(clippy::unnecessary_wraps, reason = "the shape of a lookup")]
fn a_key(_: &str, _: &str) -> Option<SecretString> {
    Some("k-123".into())
}

fn no_key(_: &str, _: &str) -> Option<SecretString> {
    None
}

fn error(registry: &Registry, choice: &ModelChoice) -> String {
    match registry.build(choice, &a_key, &CallSettings::default()) {
        Ok(_) => panic!("was built"),
        Err(why) => why.to_string(),
    }
}

#[test]
fn every_built_in_provider_can_be_built_with_its_default_model() {
    let registry = Registry::new("/nonexistent".into());
    let infos = registry.providers();
    let ids: Vec<_> = infos.iter().map(|info| info.id.as_str()).collect();
    let amazon: &[&str] = if cfg!(feature = "bedrock") { &["aws-bedrock-claude-invoke"] } else { &[] };
    let amazon = [amazon, &["aws-bedrock-mantle", "aws-bedrock-openai"]].concat();
    let others = [
        "deepseek",
        "doubao",
        "hunyuan",
        "kimi",
        "mimo-token-plan-china",
        "minimax",
        "qwen",
        "zhipu",
        "litellm",
        "ollama",
        "vllm",
        "demo",
    ];
    assert_eq!(ids, [&["anthropic", "openai", "openrouter"], &amazon[..], &others].concat());
    for info in infos {
        assert_eq!((info.error, info.file), (None, None));
        let choice = registry.default_choice(&info.id).unwrap();
        let model = registry.build(&choice, &a_key, &CallSettings::default()).unwrap();
        assert_eq!(model.id(), choice.id);
        assert!(info.models.contains(&choice.id));
    }
}

#[test]
fn no_built_in_provider_file_holds_an_unknown_key() {
    for id in provider::ids("/nonexistent".as_ref()) {
        let loaded = provider::load("/nonexistent".as_ref(), &id).unwrap().unwrap();
        assert_eq!(loaded.unknown, [""; 0], "{id}");
    }
}

#[test]
fn a_file_takes_the_place_of_the_one_inside_and_an_edit_counts_at_once() {
    let text = "id: openai\nruntime: openai-chat\nmodels: [{ id: mine, contextWindow: 1000 }]\n";
    let (dir, registry) = with_file("openai.yaml", text);
    assert_eq!(registry.default_choice("openai").unwrap().id, "mine");
    assert_eq!(registry.context_window(&ModelChoice { id: "mine".into(), ..choice("openai") }), Some(1000));
    fs::write(dir.path().join("openai.yaml"), text.replace("mine", "other")).unwrap();
    assert_eq!(registry.default_choice("openai").unwrap().id, "other");
}

#[rstest]
#[case::not_yaml("id: [\n", &["p.yaml:", "1"])]
#[case::wrong_type("id: p\nruntime: openai-chat\nmodels:\n  - id: m\n    contextWindow: lots\n", &["p.yaml:5:20", "models[0].contextWindow"])]
#[case::missing_field("id: p\nruntime: openai-chat\n", &["p.yaml:", "models"])]
#[case::missing_in_a_list("id: p\nruntime: demo\nmodels:\n  - displayName: m\n", &["p.yaml:4:", "models[0]", "id"])]
#[case::another_id("runtime: demo\nid: q\nmodels: []\n", &["p.yaml:2:1: id:", "`q`", "`p`"])]
#[case::unknown_runtime("id: p\nruntime: telepathy\nmodels: []\n", &["p.yaml:2:1: runtime:", "`telepathy`", "anthropic-messages, openai-chat, openai-responses,", "demo, deepseek"])]
#[case::no_text("\u{0}\u{1}", &["p.yaml"])]
fn a_broken_file_is_told_by_place_and_field(#[case] text: &str, #[case] parts: &[&str]) {
    let (_dir, registry) = with_file("p.yaml", text);
    let message = error(&registry, &choice("p"));
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert_eq!(message.lines().count(), 1, "{message}");
    // It is in the list with its reason, and the others go on working.
    let infos = registry.providers();
    let listed = infos.iter().find(|info| info.id == "p").unwrap().error.as_ref();
    assert_eq!(listed.map(ToString::to_string), Some(message));
    assert!(registry.build(&choice("demo"), &a_key, &CallSettings::default()).is_ok());
}

#[test]
fn unknown_keys_do_no_harm_and_are_noted() {
    let text = "id: p\nruntime: demo\ncolour: red\nmodels:\n  - { id: m, size: 3, displayName_zh: x }\n";
    let (dir, registry) = with_file("p.yaml", text);
    assert!(registry.build(&choice("p"), &a_key, &CallSettings::default()).is_ok());
    let loaded = provider::load(dir.path(), "p").unwrap().unwrap();
    assert_eq!(loaded.unknown, ["colour", "models.0.size"]);
}

#[rstest]
#[case("../secrets")]
#[case("a/b")]
#[case("")]
#[case(".hidden")]
#[case("nobody")]
fn an_id_without_a_file_is_an_unknown_provider(#[case] id: &str) {
    let registry = Registry::new("/nonexistent".into());
    let message = error(&registry, &choice(id));
    assert!(message.starts_with(&format!("unknown provider `{id}`")), "{message}");
    assert!(message.contains("anthropic, openai"), "{message}");
}

#[rstest]
#[case("openai", None, "https://api.openai.com/v1/chat/completions")]
#[case("openai", Some("http://127.0.0.1:8000/v1/"), "http://127.0.0.1:8000/v1/chat/completions")]
#[case("openai", Some("https://x.example/v1/chat/completions"), "https://x.example/v1/chat/completions")]
#[case(
    "openai",
    Some("https://x.example/v1?api-version=2"),
    "https://x.example/v1/chat/completions?api-version=2"
)]
#[case("anthropic", None, "https://api.anthropic.com/v1/messages")]
#[case("anthropic", Some("https://x.example/anthropic/"), "https://x.example/anthropic/v1/messages")]
#[case("anthropic", Some("https://x.example/v1"), "https://x.example/v1/messages")]
#[case("anthropic", Some(" "), "https://api.anthropic.com/v1/messages")]
fn the_endpoint_is_joined_with_the_protocols_path(
    #[case] id: &str,
    #[case] given: Option<&str>,
    #[case] url: &str,
) {
    let Loaded { provider, runtime, .. } = provider::load("/nonexistent".as_ref(), id).unwrap().unwrap();
    let choice = ModelChoice { endpoint: given.map(str::to_owned), ..choice(id) };
    assert_eq!(endpoint(&provider, &choice, runtime).unwrap().as_str(), url);
}

#[rstest]
#[case("https://x.example/v1", "https://x.example/v1/responses")]
#[case("https://x.example/openai/v1/", "https://x.example/openai/v1/responses")]
#[case("https://x.example/v1/responses", "https://x.example/v1/responses")]
fn the_endpoint_of_responses_is_joined_alike(#[case] given: &str, #[case] url: &str) {
    let Loaded { provider, .. } = provider::load("/nonexistent".as_ref(), "openai").unwrap().unwrap();
    let choice = ModelChoice { endpoint: Some(given.to_owned()), ..choice("openai") };
    assert_eq!(endpoint(&provider, &choice, Runtime::OpenAiResponses).unwrap().as_str(), url);
}

#[rstest]
#[case("api.openai.com/v1")]
#[case("file:///etc/passwd")]
#[case("ftp://user:hunter2@x.example/")]
fn an_endpoint_that_is_no_http_address_is_refused(#[case] given: &str) {
    let registry = Registry::new("/nonexistent".into());
    let message = error(&registry, &ModelChoice { endpoint: Some(given.into()), ..choice("openai") });
    assert!(message.contains("http or https") && !message.contains("hunter2"), "{message}");
}

#[test]
fn a_missing_key_names_the_setting() {
    let registry = Registry::new("/nonexistent".into());
    for lookup in [&no_key as SecretLookup<'_>, &|_, _| Some("  ".into())] {
        let built = registry.build(&choice("anthropic"), lookup, &CallSettings::default());
        let message = built.err().unwrap().to_string();
        assert!(message.contains("`anthropic.secrets.api_key`"), "{message}");
    }
    for local in ["ollama", "vllm", "litellm", "demo"] {
        assert!(registry.build(&choice(local), &no_key, &CallSettings::default()).is_ok(), "{local}");
    }
}

#[test]
fn a_key_that_no_header_can_carry_is_refused_without_showing_it() {
    let registry = Registry::new("/nonexistent".into());
    let lookup = |_: &str, _: &str| Some("sk-se\ncret".into());
    let built = registry.build(&choice("openai"), &lookup, &CallSettings::default());
    let message = built.err().unwrap().to_string();
    assert!(message.contains("`openai.secrets.api_key`") && !message.contains("cret`"), "{message}");
}

#[test]
fn the_first_provider_with_a_key_is_the_default_and_the_demo_never_is() {
    let registry = Registry::new("/nonexistent".into());
    assert_eq!(registry.first_configured(&no_key), None);
    let only_openai = |id: &str, key: &str| (id == "openai" && key == "api_key").then(|| "k".into());
    let found = registry.first_configured(&only_openai).unwrap();
    assert_eq!((found.provider.as_str(), found.id.as_str()), ("openai", "gpt-4o"));
    let found = registry.first_configured(&a_key).unwrap();
    assert_eq!(found.provider, "anthropic");
    // A server of one's own may have a key and need not be there.
    let only_locals = |id: &str, _: &str| ["litellm", "vllm"].contains(&id).then(|| "k".into());
    assert_eq!(registry.first_configured(&only_locals), None);
}

#[test]
fn what_a_profile_says_goes_before_what_the_file_says() {
    let registry = Registry::new("/nonexistent".into());
    let listed = |id: &str, image| ModelChoice { id: id.into(), image, ..choice("openai") };
    assert!(registry.takes_images(&listed("gpt-4o", None)));
    assert!(!registry.takes_images(&listed("gpt-4o", Some(false))));
    assert!(registry.takes_images(&listed("a-model-of-tomorrow", None)));
    assert!(!registry.takes_images(&choice("ollama")));
    assert_eq!(registry.context_window(&listed("gpt-4o", None)), Some(128_000));
    assert_eq!(registry.context_window(&listed("a-model-of-tomorrow", None)), None);
}

#[rstest]
#[case("deepseek", Runtime::OpenAiChat)]
#[case("kimi", Runtime::OpenAiChat)]
#[case("hunyuan", Runtime::OpenAiChat)]
#[case("doubao", Runtime::OpenAiChat)]
#[case("zhipu", Runtime::OpenAiChat)]
#[case("minimax", Runtime::AnthropicMessages)]
#[case("qwen", Runtime::AnthropicMessages)]
#[case("bedrock-mantle", Runtime::OpenAiResponses)]
fn an_old_runtime_name_stands_for_its_protocol(#[case] name: &str, #[case] runtime: Runtime) {
    assert_eq!(Runtime::parse(name), Ok(runtime));
}

#[rstest]
#[case::nobody_chose(None, CacheMarks::Lifetimes, Some(CacheTtl::OneHour))]
#[case::off(Some(Caching::Off), CacheMarks::Lifetimes, None)]
#[case::on(Some(Caching::On), CacheMarks::Lifetimes, Some(CacheTtl::OneHour))]
#[case::chosen(Some(Caching::For(CacheTtl::FiveMinutes)), CacheMarks::Lifetimes, Some(CacheTtl::FiveMinutes))]
#[case::a_vendor_with_one(Some(Caching::On), CacheMarks::OneLifetime, Some(CacheTtl::FiveMinutes))]
#[case::a_vendor_without(Some(Caching::On), CacheMarks::Never, None)]
fn prompts_are_cached_as_the_profile_says_else_as_the_file_offers(
    #[case] given: Option<Caching>,
    #[case] marks: CacheMarks,
    #[case] expected: Option<CacheTtl>,
) {
    let preset = |value: &str| provider::Preset { value: value.into(), label: None };
    let offered = PromptCaching { default: None, ttl_presets: vec![preset("1h"), preset("5m")] };
    assert_eq!(caching(given, Some(&offered), marks), expected);
    // What the file does not offer is done only when a profile asks for it.
    assert_eq!(caching(None, None, marks), None);
}

/// The shape of the files that the Node program writes, with all that its pages want.
#[test]
fn a_file_of_the_node_program_loads_unchanged() {
    let text = r#"
id: old
runtime: bedrock-mantle
displayName: Old
displayName_zh: 旧
description: "d"
description_zh: "d"
defaultEndpoint: 'https://x.example/openai/v1'
defaultModelId: m
endpointPresets: ['https://x.example/openai/v1']
secrets:
  - key: api_key
    description: "k"
    description_zh: "k"
    default: "<<OLD_KEY>>"
    secret: true
  - key: region
    description: "r"
    default: us-east-1
    secret: false
models:
  - id: m
    displayName: M
    maxOutputTokens: 128000
    contextWindow: 272000
    capabilities:
      image: true
      video: false
      audio: false
      verbosity: { default: medium, presets: [low, medium, high] }
      promptCaching:
        default: 5m
        ttlPresets:
          - value: 5m
            label: 5 min
      thinking:
        mode: adaptive
        defaultEnabled: true
        default: xhigh
        defaultBudgetTokens: 8192
        effortPresets:
          - value: low
            label: Low
          - { value: xhigh, label: XHigh }
"#;
    let (dir, registry) = with_file("old.yaml", text);
    let loaded = provider::load(dir.path(), "old").unwrap().unwrap();
    assert_eq!(loaded.unknown, [""; 0]);
    let choice = registry.default_choice("old").unwrap();
    let model = registry.build(&choice, &a_key, &CallSettings::default()).unwrap();
    assert_eq!(model.thinking_effort(), Some("xhigh"));
}

#[cfg(feature = "bedrock")]
#[test]
fn providers_of_amazon_can_be_called_without_a_key_and_are_no_default_for_that() {
    let registry = Registry::new("/nonexistent".into());
    for id in ["aws-bedrock-claude-invoke", "aws-bedrock-mantle", "aws-bedrock-openai"] {
        assert!(registry.build(&choice(id), &no_key, &CallSettings::default()).is_ok(), "{id}");
        assert!(registry.aws_credentials(&choice(id), &no_key).is_some(), "{id}");
        assert!(registry.aws_credentials(&choice(id), &a_key).is_none(), "{id}");
    }
    assert!(registry.aws_credentials(&choice("openai"), &no_key).is_none());
    assert_eq!(registry.first_configured(&no_key), None);
    let both = |id: &str, key: &str| {
        (id == "aws-bedrock-claude-invoke" && key != "session_token").then(|| SecretString::from("k"))
    };
    assert_eq!(registry.first_configured(&both).unwrap().provider, "aws-bedrock-claude-invoke");
    let half = |id: &str, key: &str| both(id, key).filter(|_| key == "access_key_id");
    assert_eq!(registry.first_configured(&half), None);
}

#[cfg(not(feature = "bedrock"))]
#[test]
fn a_program_without_bedrock_says_so() {
    let (_dir, registry) = with_file("p.yaml", "id: p\nruntime: bedrock-invoke\nmodels: []\n");
    let message = error(&registry, &choice("p"));
    assert!(message.contains("p.yaml:2:1") && message.contains("cargo feature `bedrock`"), "{message}");
}
