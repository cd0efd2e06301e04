//! Accounts of the Node program: their tokens keep working, though only the hash is stored from now on.

use super::Run;
use super::place::Place;
use crate::access::AccountLevel;
use crate::session::ids::SessionId;
use crate::store::Database;
use crate::store::accounts::{Account, Language, looks_like_token};
use crate::store::imported::{WithToken, add_accounts};
use crate::store::node::{NodeAccount, known_accounts};
use crate::store::schema::Schema;
use serde::Deserialize;
use std::collections::HashSet;

/// The accounts of the old home.
pub struct Accounts {
    /// In the order in which they were made.
    pub all: Vec<NodeAccount>,
    source: Place,
    readable: bool,
}

#[derive(Deserialize)]
struct WebConfig {
    token: Option<String>,
}

/// Reads the old accounts. Where they cannot be read, that is named, and there are none.
pub fn read(run: &mut Run<'_>) -> anyhow::Result<Accounts> {
    let source = Place::of(run.options.from.channels_db(), Schema::Channels)?;
    let mut accounts = Accounts { all: Vec::new(), readable: source.broken().is_none(), source };
    if let Some(why) = accounts.source.broken().map(str::to_owned) {
        run.skip("accounts", why);
    }
    let Some(old) = accounts.source.old() else { return Ok(accounts) };
    match old.map_err(|error| error.to_string()).and_then(|old| old.accounts().map_err(|e| e.to_string())) {
        Ok(all) => accounts.all = all,
        Err(why) => {
            accounts.readable = false;
            run.skip_file(accounts.source.path(), format!("its accounts cannot be read: {why}"));
        }
    }
    Ok(accounts)
}

/// Takes them over. An old database that cannot be read stays where it is.
pub async fn import(run: &mut Run<'_>, accounts: Accounts) -> anyhow::Result<()> {
    let Accounts { all, source, readable } = accounts;
    let own = run.options.home == run.options.from;
    if !readable {
        return Ok(());
    }
    let target = if own { source } else { Place::of(run.options.home.channels_db(), Schema::Channels)? };
    if !own && target.is_old() {
        anyhow::bail!("{}: made by the Node program; import that home first", target.path().display());
    }
    let fresh = own && target.is_old();
    let known = if target.is_ours() {
        if !run.options.dry_run {
            Database::open(target.path(), Schema::Channels)?.close().await;
        }
        known_accounts(target.path())?
    } else {
        HashSet::new()
    };
    let mut new = Vec::new();
    for account in all {
        if known.contains(&account.id) {
            run.report.known_accounts += 1;
            continue;
        }
        let what = format!("account {}", account.id);
        match converted(account) {
            Ok(account) => new.push(account),
            Err(why) => run.skip(what, why),
        }
    }
    run.report.accounts += new.len();
    if fresh {
        run.report.set_aside.push(target.aside());
    }
    if run.options.dry_run || (new.is_empty() && !fresh) {
        return Ok(());
    }
    let file = if fresh { target.building() } else { target.path().to_owned() };
    if fresh {
        target.clear()?;
    }
    let db = Database::open(&file, Schema::Channels)?;
    let refused = add_accounts(&db, new).await;
    db.close().await;
    for id in refused? {
        run.report.accounts -= 1;
        run.skip(format!("account {id}"), "its token belongs to another account");
    }
    if fresh {
        target.settle(true)?;
    }
    Ok(())
}

fn converted(old: NodeAccount) -> Result<WithToken, String> {
    if old.channel_type != "web" {
        return Err(format!("this program has no channel `{}`", old.channel_type.escape_debug()));
    }
    let config: WebConfig =
        serde_json::from_str(&old.config).map_err(|_| "its `config` is no JSON with a token".to_owned())?;
    let token = config.token.filter(|token| looks_like_token(token));
    let token = token.ok_or("it has no token of 32 characters; make a new account for it")?;
    if SessionId::web_prefix(&old.id).parse::<SessionId>().is_err() {
        return Err("its id cannot be part of a session id".into());
    }
    if !old.workspace_path.starts_with('/') {
        return Err("its workspace is no absolute path".into());
    }
    let account = Account {
        level: AccountLevel::from_stored(&old.access_level),
        language: Language::parse(&old.language).unwrap_or_default(),
        id: old.id,
        workspace_path: old.workspace_path.into(),
        label: old.label,
        enabled: old.enabled,
        token_prefix: String::new(),
        created_at: old.created_at,
        updated_at: old.updated_at,
    };
    Ok(WithToken { account, token })
}
