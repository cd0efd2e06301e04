//! `halo token`: accounts and their tokens. Works beside a running server, which sees the change at once.

use super::{Place, block_on, existing_folder, terminal};
use crate::access::AccountLevel;
use crate::clock::{Clock, SystemClock, iso};
use crate::config::Home;
use crate::http::web::accounts::Row;
use crate::store::accounts::{self, Account, Language, NewAccount};
use crate::store::schema::Schema;
use crate::store::{Database, StoreError};
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make an account and print its token, which is shown only now
    Create(CreateArgs),
    /// List the accounts
    List(JsonArgs),
    /// Delete an account; its token is dead at once
    Revoke(IdArgs),
    /// Replace an account's token and print the new one
    Rotate(IdArgs),
}

#[derive(Debug, Args)]
pub struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct IdArgs {
    /// The account, as `halo token list` shows it
    id: String,
    #[command(flatten)]
    output: JsonArgs,
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The folder that the account works in
    #[arg(long, value_name = "DIR")]
    workspace: PathBuf,
    /// What the account may do
    #[arg(long, default_value = "readonly", value_parser = level_parser())]
    access: AccountLevel,
    /// A name for people
    #[arg(long, default_value = "")]
    label: String,
    #[command(flatten)]
    output: JsonArgs,
}

fn level_parser() -> impl TypedValueParser<Value = AccountLevel> {
    PossibleValuesParser::new(AccountLevel::ALL.map(AccountLevel::as_str))
        .map(|name| AccountLevel::from_stored(&name))
}

/// Runs one of them.
pub fn run(place: &Place, command: TokenCommand) -> anyhow::Result<ExitCode> {
    let home = place.prepared_home()?;
    block_on(async {
        let db = open(&home)?;
        let result = match command {
            TokenCommand::Create(args) => create(&db, args).await,
            TokenCommand::List(args) => list(&db, args.json).await,
            TokenCommand::Revoke(args) => revoke(&db, args).await,
            TokenCommand::Rotate(args) => rotate(&db, args).await,
        };
        db.close().await;
        result
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the accounts of a home.
pub fn open(home: &Home) -> anyhow::Result<Database> {
    Ok(Database::open(&home.channels_db(), Schema::Channels)?)
}

/// Makes a `full` account for the folder; answers its token.
pub async fn create_full(db: &Database, workspace_path: PathBuf, label: &str) -> Result<String, StoreError> {
    let level = AccountLevel::Full;
    let new = NewAccount { workspace_path, label: label.to_owned(), level, language: Language::En };
    Ok(accounts::create(db, new, SystemClock.now_ms()).await?.token)
}

async fn create(db: &Database, args: CreateArgs) -> anyhow::Result<()> {
    let workspace_path = existing_folder(&args.workspace)?;
    let new = NewAccount { workspace_path, label: args.label, level: args.access, language: Language::En };
    let created = accounts::create(db, new, SystemClock.now_ms()).await?;
    if args.output.json {
        return terminal::say(&with_token(created.account, &created.token)?.to_string());
    }
    terminal::say(&created.token)
}

async fn list(db: &Database, as_json: bool) -> anyhow::Result<()> {
    let accounts = accounts::list(db).await?;
    if as_json {
        let rows: Vec<Row> = accounts.into_iter().map(Row::of).collect();
        return terminal::say(&serde_json::to_string(&rows)?);
    }
    if accounts.is_empty() {
        terminal::tell("no accounts; make one with `halo token create --workspace DIR`");
        return Ok(());
    }
    let mut rows = vec![["ID", "TOKEN", "ACCESS", "STATE", "MADE", "WORKSPACE", "LABEL"].map(str::to_owned)];
    rows.extend(accounts.iter().map(|account| {
        let state = match (account.enabled, account.workspace_path.is_dir()) {
            (false, _) => "disabled",
            (true, false) => "no folder",
            (true, true) => "enabled",
        };
        [
            account.id.clone(),
            format!("{}…", account.token_prefix),
            account.level.as_str().to_owned(),
            state.to_owned(),
            crate::text::head_chars(&iso(account.created_at), 10).to_owned(),
            account.workspace_path.display().to_string().replace(char::is_control, " "),
            account.label.replace(char::is_control, " "),
        ]
    }));
    terminal::table(&rows)
}

async fn revoke(db: &Database, args: IdArgs) -> anyhow::Result<()> {
    anyhow::ensure!(accounts::revoke(db, &args.id).await?, unknown(&args.id));
    if args.output.json {
        return terminal::say(&json!({"accountId": args.id, "revoked": true}).to_string());
    }
    terminal::tell(&format!("revoked {}", args.id));
    Ok(())
}

async fn rotate(db: &Database, args: IdArgs) -> anyhow::Result<()> {
    let token = accounts::rotate(db, &args.id, SystemClock.now_ms()).await?;
    let token = token.ok_or_else(|| anyhow::anyhow!(unknown(&args.id)))?;
    if !args.output.json {
        return terminal::say(&token);
    }
    let account = accounts::list(db).await?.into_iter().find(|account| account.id == args.id);
    let account = account.ok_or_else(|| anyhow::anyhow!(unknown(&args.id)))?;
    terminal::say(&with_token(account, &token)?.to_string())
}

fn unknown(id: &str) -> String {
    format!("no account `{id}`; `halo token list` shows them")
}

fn with_token(account: Account, token: &str) -> anyhow::Result<Value> {
    let mut shown = serde_json::to_value(Row::of(account))?;
    shown["token"] = token.into();
    Ok(shown)
}
