//! Accounts: one account, one token, one workspace, one level (web contract, section 1). Only the SHA-256 of a
//! token is stored; the token itself is shown once, by whoever calls [`create`] or [`rotate`].

use super::{Database, StoreError};
use crate::access::AccountLevel;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::RngExt;
use rusqlite::{OptionalExtension, Row, params};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::PathBuf;
use subtle::ConstantTimeEq;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 24;

/// Characters of a token: base64url without padding.
const TOKEN_CHARS: usize = 32;

/// Characters of a token that stay readable.
pub(super) const PREFIX_CHARS: usize = 6;

const COLUMNS: &str = "account_id, workspace_path, label, enabled, access_level, language, token_prefix, \
                       created_at, updated_at";

/// The language that an account's owner reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

impl Language {
    /// Every language, in the order that error messages list them.
    pub const ALL: [Self; 2] = [Self::En, Self::Zh];

    /// The name in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Zh => "zh",
        }
    }

    /// Reads what a person typed: exactly one of the names.
    pub fn parse(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.as_str() == value)
    }
}

/// An account as it is stored, without its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// 8 hexadecimal digits.
    pub id: String,
    /// Where its sessions live; absolute.
    pub workspace_path: PathBuf,
    /// What its owner calls it; may be empty.
    pub label: String,
    /// Whether its token opens anything.
    pub enabled: bool,
    /// What its token opens.
    pub level: AccountLevel,
    /// The language that its owner reads.
    pub language: Language,
    /// The first 6 characters of its token.
    pub token_prefix: String,
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Milliseconds since the Unix epoch.
    pub updated_at: i64,
}

/// What a new account is made of.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// Where its sessions live; absolute and UTF-8, as the caller has checked.
    pub workspace_path: PathBuf,
    /// What its owner calls it; may be empty.
    pub label: String,
    /// What its token opens.
    pub level: AccountLevel,
    /// The language that its owner reads.
    pub language: Language,
}

/// A new account, and the only sight of its token.
pub struct Created {
    /// The account.
    pub account: Account,
    /// The token: 32 characters.
    pub token: String,
}

impl fmt::Debug for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Created").field("account", &self.account).finish_non_exhaustive()
    }
}

/// What changes of an account; `None` leaves the value as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// What its owner calls it.
    pub label: Option<String>,
    /// Where its sessions live; absolute and UTF-8, as the caller has checked.
    pub workspace_path: Option<PathBuf>,
    /// Whether its token opens anything.
    pub enabled: Option<bool>,
    /// What its token opens.
    pub level: Option<AccountLevel>,
    /// The language that its owner reads.
    pub language: Option<Language>,
}

/// Makes an account with a token of its own.
pub async fn create(db: &Database, new: NewAccount, now_ms: i64) -> Result<Created, StoreError> {
    let token = new_token();
    let secret = hash(&token);
    let prefix = token[..PREFIX_CHARS].to_owned();
    let account = db
        .write(move |db| {
            // Ids are short, so one may be taken; it does not take many tries to find a free one.
            loop {
                let inserted = db
                    .prepare_cached(&format!(
                        "INSERT INTO channel_accounts (account_id, channel_type, workspace_path, label, enabled,
                         access_level, language, token_hash, token_prefix, created_at, updated_at)
                         VALUES (?1, 'web', ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?8)
                         ON CONFLICT (account_id) DO NOTHING RETURNING {COLUMNS}"
                    ))?
                    .query_row(
                        params![
                            format!("{:08x}", rand::rng().random::<u32>()),
                            new.workspace_path.to_string_lossy(),
                            new.label,
                            new.level.as_str(),
                            new.language.as_str(),
                            secret,
                            prefix,
                            now_ms,
                        ],
                        account,
                    )
                    .optional()?;
                if let Some(account) = inserted {
                    return Ok(account);
                }
            }
        })
        .await?;
    Ok(Created { account, token })
}

/// Every account, the oldest first.
pub async fn list(db: &Database) -> Result<Vec<Account>, StoreError> {
    db.read(|db| {
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM channel_accounts ORDER BY created_at, account_id"))?
            .query_map([], account)?
            .collect()
    })
    .await
}

/// The account with this id.
pub async fn get(db: &Database, id: &str) -> Result<Option<Account>, StoreError> {
    let id = id.to_owned();
    db.read(move |db| {
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM channel_accounts WHERE account_id = ?1"))?
            .query_row([id], account)
            .optional()
    })
    .await
}

/// Those of these accounts that are there and enabled.
pub async fn enabled_among(db: &Database, ids: Vec<String>) -> Result<Vec<Account>, StoreError> {
    db.read(move |db| {
        let sql = format!("SELECT {COLUMNS} FROM channel_accounts WHERE account_id = ?1 AND enabled");
        let mut select = db.prepare_cached(&sql)?;
        ids.iter().filter_map(|id| select.query_row([id], account).optional().transpose()).collect()
    })
    .await
}

/// Deletes the account; false when there is none. Its token opens nothing from then on.
pub async fn revoke(db: &Database, id: &str) -> Result<bool, StoreError> {
    let id = id.to_owned();
    db.write(move |db| {
        let deleted =
            db.prepare_cached("DELETE FROM channel_accounts WHERE account_id = ?1")?.execute([&id])?;
        Ok(deleted > 0)
    })
    .await
}

/// Gives the account a new token, and the only sight of it; the old one opens nothing from then on. `None` when
/// there is no such account.
pub async fn rotate(db: &Database, id: &str, now_ms: i64) -> Result<Option<String>, StoreError> {
    update_and_rotate(db, id, Change::default(), now_ms).await
}

/// [`update`] and [`rotate`] as one change.
pub async fn update_and_rotate(
    db: &Database,
    id: &str,
    change: Change,
    now_ms: i64,
) -> Result<Option<String>, StoreError> {
    let token = new_token();
    let found = apply(db, id, change, Some(&token), now_ms).await?;
    Ok(found.then_some(token))
}

/// Changes the account; false when there is none.
pub async fn update(db: &Database, id: &str, change: Change, now_ms: i64) -> Result<bool, StoreError> {
    apply(db, id, change, None, now_ms).await
}

async fn apply(
    db: &Database,
    id: &str,
    change: Change,
    token: Option<&str>,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let id = id.to_owned();
    let secret = token.map(hash);
    let prefix = token.map(|token| token[..PREFIX_CHARS].to_owned());
    db.write(move |db| {
        let updated = db
            .prepare_cached(
                "UPDATE channel_accounts SET label = coalesce(?2, label),
                 workspace_path = coalesce(?3, workspace_path), enabled = coalesce(?4, enabled),
                 access_level = coalesce(?5, access_level), language = coalesce(?6, language),
                 token_hash = coalesce(?7, token_hash), token_prefix = coalesce(?8, token_prefix),
                 updated_at = ?9
                 WHERE account_id = ?1",
            )?
            .execute(params![
                id,
                change.label,
                change.workspace_path.as_ref().map(|path| path.to_string_lossy()),
                change.enabled,
                change.level.map(AccountLevel::as_str),
                change.language.map(Language::as_str),
                secret,
                prefix,
                now_ms,
            ])?;
        Ok(updated > 0)
    })
    .await
}

/// The account that the token opens; `None` for an unknown token and for a disabled account.
pub async fn by_token(db: &Database, token: &str) -> Result<Option<Account>, StoreError> {
    if !looks_like_token(token) {
        return Ok(None);
    }
    let secret = hash(token);
    let found = db
        .read(move |db| {
            db.prepare_cached(&format!(
                "SELECT {COLUMNS}, token_hash FROM channel_accounts WHERE token_hash = ?1"
            ))?
            .query_row([secret], |row| Ok((account(row)?, row.get::<_, [u8; 32]>("token_hash")?)))
            .optional()
        })
        .await?;
    // The index compares byte by byte; the verdict must not depend on how far it came.
    Ok(found
        .filter(|(account, stored)| bool::from(stored.ct_eq(&secret)) && account.enabled)
        .map(|found| found.0))
}

/// Whether the text has the shape of our tokens: 32 characters of base64url.
pub fn looks_like_token(text: &str) -> bool {
    text.len() == TOKEN_CHARS
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn new_token() -> String {
    URL_SAFE_NO_PAD.encode(rand::rng().random::<[u8; TOKEN_BYTES]>())
}

pub(super) fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn account(row: &Row<'_>) -> rusqlite::Result<Account> {
    Ok(Account {
        id: row.get("account_id")?,
        workspace_path: PathBuf::from(row.get::<_, String>("workspace_path")?),
        label: row.get("label")?,
        enabled: row.get("enabled")?,
        level: AccountLevel::from_stored(&row.get::<_, String>("access_level")?),
        language: Language::parse(&row.get::<_, String>("language")?).unwrap_or_default(),
        token_prefix: row.get("token_prefix")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::Schema;
    use std::fs;
    use tempfile::TempDir;

    async fn with_account() -> (TempDir, Database, Created) {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::open(&folder.path().join("channels.db"), Schema::Channels).unwrap();
        let new = NewAccount {
            workspace_path: "/work".into(),
            label: "laptop".into(),
            level: AccountLevel::Workspace,
            language: Language::Zh,
        };
        let created = create(&db, new, 5).await.unwrap();
        (folder, db, created)
    }

    #[tokio::test]
    async fn a_new_account_is_found_by_its_token_and_by_its_id() {
        let (_folder, db, Created { account, token }) = with_account().await;
        assert!(looks_like_token(&token));
        assert_eq!((account.id.len(), &account.token_prefix[..]), (8, &token[..6]));
        assert!(account.id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!((&account.label[..], account.enabled), ("laptop", true));
        assert_eq!((account.level, account.language), (AccountLevel::Workspace, Language::Zh));
        assert_eq!(by_token(&db, &token).await.unwrap().as_ref(), Some(&account));
        assert_eq!(get(&db, &account.id).await.unwrap().as_ref(), Some(&account));
        assert_eq!(list(&db).await.unwrap(), [account]);
        assert_eq!(get(&db, "00000000").await.unwrap(), None);
    }

    #[tokio::test]
    async fn unknown_misshapen_and_disabled_tokens_open_nothing() {
        let (_folder, db, Created { account, token }) = with_account().await;
        let mut unknown = token.clone();
        unknown.replace_range(31.., if token.ends_with('A') { "B" } else { "A" });
        for wrong in [&unknown[..], "", "x", &token[..31], &format!("{token}x"), &"ä".repeat(16)] {
            assert_eq!(by_token(&db, wrong).await.unwrap(), None);
        }
        let off = Change { enabled: Some(false), ..Change::default() };
        assert!(update(&db, &account.id, off, 6).await.unwrap());
        assert_eq!(by_token(&db, &token).await.unwrap(), None);
        assert!(!get(&db, &account.id).await.unwrap().unwrap().enabled);
    }

    #[tokio::test]
    async fn a_rotated_token_replaces_the_old_one_and_a_revoked_one_is_gone() {
        let (_folder, db, Created { account, token }) = with_account().await;
        let second = rotate(&db, &account.id, 9).await.unwrap().unwrap();
        assert_eq!(by_token(&db, &token).await.unwrap(), None);
        let now = by_token(&db, &second).await.unwrap().unwrap();
        assert_eq!((&now.token_prefix[..], now.created_at, now.updated_at), (&second[..6], 5, 9));
        assert!(revoke(&db, &account.id).await.unwrap());
        assert_eq!(by_token(&db, &second).await.unwrap(), None);
        assert!(!revoke(&db, &account.id).await.unwrap());
        assert_eq!(rotate(&db, &account.id, 9).await.unwrap(), None);
        assert!(!update(&db, &account.id, Change::default(), 9).await.unwrap());
    }

    #[tokio::test]
    async fn a_change_and_a_new_token_come_together() {
        let (_folder, db, Created { account, token }) = with_account().await;
        let change = Change { label: Some("desk".into()), ..Change::default() };
        let second = update_and_rotate(&db, &account.id, change, 9).await.unwrap().unwrap();
        assert_eq!(by_token(&db, &token).await.unwrap(), None);
        assert_eq!(by_token(&db, &second).await.unwrap().unwrap().label, "desk");
    }

    #[tokio::test]
    async fn accounts_that_are_gone_or_disabled_are_not_among_the_enabled() {
        let (_folder, db, Created { account, .. }) = with_account().await;
        let ids = || vec![account.id.clone(), "00000000".to_owned()];
        assert_eq!(enabled_among(&db, ids()).await.unwrap(), std::slice::from_ref(&account));
        let off = Change { enabled: Some(false), ..Change::default() };
        update(&db, &account.id, off, 6).await.unwrap();
        assert_eq!(enabled_among(&db, ids()).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_change_touches_only_what_it_names() {
        let (_folder, db, Created { account, .. }) = with_account().await;
        let change =
            Change { level: Some(AccountLevel::Observer), label: Some(String::new()), ..Change::default() };
        assert!(update(&db, &account.id, change, 7).await.unwrap());
        let changed = get(&db, &account.id).await.unwrap().unwrap();
        let expected =
            Account { level: AccountLevel::Observer, label: String::new(), updated_at: 7, ..account.clone() };
        assert_eq!(changed, expected);
        let change = Change {
            workspace_path: Some("/other".into()),
            language: Some(Language::En),
            ..Change::default()
        };
        update(&db, &account.id, change, 8).await.unwrap();
        let changed = get(&db, &account.id).await.unwrap().unwrap();
        assert_eq!((changed.workspace_path, changed.language), (PathBuf::from("/other"), Language::En));
    }

    #[tokio::test]
    async fn a_token_is_neither_in_the_file_nor_in_debug_output() {
        let (folder, db, created) = with_account().await;
        db.close().await;
        let file = fs::read(folder.path().join("channels.db")).unwrap();
        let holds = |text: &str| file.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(holds("laptop") && holds(&created.token[..6]) && !holds(&created.token[..7]));
        assert!(!format!("{created:?}").contains(&created.token[..7]));
    }
}
