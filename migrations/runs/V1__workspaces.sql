-- Every folder that was ever opened as a workspace, so that a start can look for runs that were cut off.
CREATE TABLE workspaces (
  path TEXT PRIMARY KEY,
  first_used_at INTEGER NOT NULL,
  last_used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
