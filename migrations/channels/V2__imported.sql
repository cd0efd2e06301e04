-- Accounts that `halo import` took over: what was revoked since does not come back when it runs again.
CREATE TABLE imported (account_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
