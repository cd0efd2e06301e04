-- Rows that `/history` leaves out unless a page reaches them. They are always the oldest of a log, without a gap.
ALTER TABLE log ADD COLUMN archived INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1));

-- Sessions that `halo import` took over: what was deleted since does not come back when it runs again.
CREATE TABLE imported (session_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
