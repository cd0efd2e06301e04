-- The sessions of one workspace. Times are milliseconds since the Unix epoch.
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, parent_id TEXT, agent_id TEXT NOT NULL, agent_name TEXT NOT NULL, description TEXT,
  working_dir TEXT, access_level TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  stopped_at INTEGER, archived_at INTEGER, title TEXT, exchange_count INTEGER NOT NULL DEFAULT 0,
  context_tokens INTEGER NOT NULL DEFAULT 0, total_output_tokens INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The display log. Its key is its only index: a second one costs 40 % of the throughput.
CREATE TABLE log (
  session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
  at INTEGER NOT NULL, task INTEGER NOT NULL DEFAULT 0, row TEXT NOT NULL, PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;

-- What the model is told.
CREATE TABLE model_messages (
  session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
  message TEXT NOT NULL, PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;

-- What waits for a running session.
CREATE TABLE queue (
  session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
  entry TEXT NOT NULL, PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;

-- The assistant row that a run is still writing.
CREATE TABLE inflight (
  session_id TEXT PRIMARY KEY REFERENCES sessions(id) ON DELETE CASCADE, row TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The ledger: a row stands while a run is in flight. What is left at a start was cut off.
CREATE TABLE runs (
  session_id TEXT PRIMARY KEY REFERENCES sessions(id) ON DELETE CASCADE, started_at INTEGER NOT NULL,
  crashes INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Agents and skills that were switched off.
CREATE TABLE disabled_items (
  item_type TEXT NOT NULL, item_id TEXT NOT NULL, scope TEXT NOT NULL, disabled_at INTEGER NOT NULL,
  PRIMARY KEY (item_type, item_id, scope)
) STRICT, WITHOUT ROWID;
