//! `halo model`: which providers there are, and whether one of them answers.

use super::providers::{self, Answering, KeyState};
use super::{Place, block_on, terminal};
use crate::config::{Effective, Home, Live, Overrides, Severity};
use crate::model::registry::{Caching, CallSettings, ModelChoice, ProviderInfo, Registry};
use crate::model::{Block, Completion, Event, Message, Model, ModelError, Request, Role, Trouble};
use clap::{Args, Subcommand};
use futures_util::StreamExt;
use secrecy::SecretString;
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The most tokens of the answer to a test: room for a model that thinks first.
const TEST_TOKENS: u64 = 1024;

/// What to do with models.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// List the providers: what they speak, where, with which models, and whether they have a key
    #[command(
        after_help = "Providers are inside the binary, and files of your own below global/models/ of the home; a \
        file takes the place of a provider of the same id. A key goes into secrets/settings.yaml:\n\n  \
        anthropic:\n    secrets:\n      api_key: <<ANTHROPIC_API_KEY>>\n\nThe line behind the list tells which \
        model answers agents that name none."
    )]
    List(ListArgs),
    /// Make one tiny call, and say which part is wrong if it fails; exit 1 then
    #[command(
        after_help = "The call is paid for like any other: a few tokens. A failure is told as one of: DNS, \
        connection refused, network, TLS, timeout, key, permission, balance, model name, endpoint path, throttled, \
        provider, empty answer; with what to do about it. Keys are never shown.\n\nExamples:\n  halo model test \
        anthropic\n  halo model test ollama --model qwen3:8b --timeout 300"
    )]
    Test(TestArgs),
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct TestArgs {
    /// The provider's id, as `halo model list` shows it
    provider: String,
    /// The model's id [default: the provider's default model]
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// How long the whole call may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// Runs one of them.
pub fn run(place: &Place, command: ModelCommand) -> anyhow::Result<ExitCode> {
    let home = place.home()?;
    let (live, problems) = Live::load(&home, place.environment.clone(), Overrides::default(), Vec::new())?;
    for problem in problems.iter().filter(|problem| problem.severity == Severity::Warning) {
        terminal::warn(&problem.to_string());
    }
    let config = live.current();
    match command {
        ModelCommand::List(args) => list(place, &home, &config, args.json),
        ModelCommand::Test(args) => test(place, &home, &config, args),
    }
}

fn list(place: &Place, home: &Home, config: &Effective, as_json: bool) -> anyhow::Result<ExitCode> {
    let infos = Registry::new(home.models_dir()).providers();
    let answering = providers::answering(home, config, &place.environment);
    let chosen = match &answering {
        Answering::Model(choice) => Some(choice.clone()),
        Answering::Demo => {
            Some(ModelChoice { provider: "demo".into(), id: "demo".into(), ..ModelChoice::default() })
        }
        Answering::Broken(_) | Answering::BrokenFile => None,
    };
    let key = |info: &ProviderInfo| KeyState::of(info, config, &place.environment);
    if as_json {
        let rows: Vec<_> = infos
            .iter()
            .map(|info| {
                json!({
                    "id": info.id, "displayName": info.display_name, "runtime": info.runtime,
                    "endpoint": info.endpoint, "models": info.models, "defaultModel": info.default_model,
                    "key": key(info).word(), "file": info.file,
                    "error": info.error.as_ref().map(ToString::to_string),
                    "answers": chosen.as_ref().is_some_and(|choice| choice.provider == info.id),
                })
            })
            .collect();
        terminal::say(&serde_json::to_string(&rows)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["PROVIDER", "SPEAKS", "KEY", "ENDPOINT", "MODELS"].map(str::to_owned)];
    rows.extend(infos.iter().filter(|info| info.error.is_none()).map(|info| {
        let first = info.default_model.iter();
        let others = info.models.iter().filter(|model| Some(*model) != info.default_model.as_ref());
        let models: Vec<&str> = first.chain(others).map(String::as_str).collect();
        let endpoint = if info.endpoint.is_empty() { "-" } else { &info.endpoint };
        [info.id.clone(), info.runtime.clone(), key(info).to_string(), endpoint.to_owned(), models.join(", ")]
    }));
    terminal::table(&rows)?;
    for fault in providers::broken_files(home) {
        terminal::tell(&format!("{} {fault}", terminal::coloured("31", "error:")));
    }
    match (answering, chosen) {
        (Answering::Broken(why), _) => terminal::warn(&format!("agents without a model of their own: {why}")),
        (_, Some(choice)) => {
            terminal::say("")?;
            let name = format!("{} ({})", choice.provider, choice.id);
            terminal::say(&format!("Agents without a model of their own are answered by {name}."))?;
        }
        (_, None) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn test(place: &Place, home: &Home, config: &Effective, args: TestArgs) -> anyhow::Result<ExitCode> {
    let registry = Registry::new(home.models_dir());
    let mut choice = registry.default_choice(&args.provider).or_else(|error| match &args.model {
        // A provider that names no model can be tried with one of the caller's choice.
        Some(_) if matches!(error, crate::model::registry::BuildError::NoModel(_)) => {
            Ok(ModelChoice { provider: args.provider.clone(), ..ModelChoice::default() })
        }
        _ => Err(error),
    })?;
    choice.id = args.model.unwrap_or(choice.id);
    choice.max_tokens = Some(TEST_TOKENS);
    choice.prompt_caching = Some(Caching::Off);
    let Some(info) = registry.providers().into_iter().find(|info| info.id == choice.provider) else {
        anyhow::bail!("the provider `{}` is gone", choice.provider);
    };
    let key = info.secret.as_ref().map(|key| format!("`{}.secrets.{key}`", info.id));
    if let (KeyState::Unset(variable), Some(key)) = (KeyState::of(&info, config, &place.environment), &key) {
        anyhow::bail!(
            "key: {key} is <<{variable}>> and the environment variable {variable} is not set; set it, or write the \
             key into {}",
            home.settings_yaml().display()
        );
    }
    let secret = |provider: &str, key: &str| -> Option<SecretString> { config.secret(provider, key, None) };
    let limit = Duration::from_secs(args.timeout);
    let settings = CallSettings { idle_timeout: limit, ..CallSettings::default() };
    let model = registry.build(&choice, &secret, &settings)?;
    let outcome = block_on(async {
        Ok(tokio::time::timeout(limit, call(model.as_ref())).await.unwrap_or_else(|_| Err(Failed::Late)))
    })?;
    let (trouble, words) = match outcome {
        Ok(answer) => {
            terminal::say(&format!("ok: {} ({}) {}", choice.provider, choice.id, answer.told()))?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failed::Late) => {
            (Trouble::Timeout, format!("{}: no whole answer within {} s", choice.provider, args.timeout))
        }
        Err(Failed::Call(error)) => (Trouble::of(&error), error.message),
    };
    if info.takes_aws_credentials && matches!(trouble, Trouble::Key | Trouble::Permission) {
        anyhow::bail!("{}: {words}", trouble.name());
    }
    let place = match (trouble, key) {
        (Trouble::Key | Trouble::Permission | Trouble::Balance, Some(key)) => {
            format!(" (the key is {key} in {})", home.settings_yaml().display())
        }
        (Trouble::ModelName, _) => format!(" (the model is `{}`)", choice.id),
        _ if info.endpoint.is_empty() => String::new(),
        _ => {
            let file = info.file.map_or_else(
                || {
                    format!(
                        "put another into {}",
                        home.models_dir().join(format!("{}.yaml", info.id)).display()
                    )
                },
                |file| format!("from {}", file.display()),
            );
            format!(" (the endpoint is {}, {file})", info.endpoint)
        }
    };
    anyhow::bail!("{}: {words}; {}{place}", trouble.name(), trouble.mend());
}

/// What a test call gave.
struct Answer {
    completion: Completion,
    first_token: Duration,
    all: Duration,
}

enum Failed {
    Late,
    Call(ModelError),
}

impl Answer {
    fn told(&self) -> String {
        let usage = self.completion.usage;
        format!(
            "answers: first token after {} ms, all after {} ms, {} tokens in, {} out",
            self.first_token.as_millis(),
            self.all.as_millis(),
            usage.input + usage.cache_read + usage.cache_write,
            usage.output
        )
    }
}

async fn call(model: &dyn Model) -> Result<Answer, Failed> {
    let began = Instant::now();
    let said = Message { role: Role::User, content: vec![Block::Text { text: "say ok".into() }] };
    let request = Request { system: "".into(), messages: vec![Arc::new(said)], tools: Arc::new([]) };
    let mut events = model.call(request);
    let mut first_token = None;
    while let Some(event) = events.next().await {
        match event.map_err(Failed::Call)? {
            Event::Text(_) | Event::Thinking(_) => {
                first_token.get_or_insert_with(|| began.elapsed());
            }
            Event::Activity => {}
            Event::Done(completion) => {
                let all = began.elapsed();
                return Ok(Answer { completion, first_token: first_token.unwrap_or(all), all });
            }
        }
    }
    Err(Failed::Late)
}
