-- Who may talk to this server: one account, one token, one workspace, one level.
CREATE TABLE channel_accounts (
  account_id TEXT PRIMARY KEY,
  channel_type TEXT NOT NULL,
  workspace_path TEXT NOT NULL,
  label TEXT NOT NULL,
  enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  access_level TEXT NOT NULL,
  language TEXT NOT NULL,
  -- SHA-256 of the token; the token itself is never stored.
  token_hash BLOB NOT NULL UNIQUE CHECK (length(token_hash) = 32),
  -- What people tell a token by: its first 6 characters.
  token_prefix TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
