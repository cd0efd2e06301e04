-- What a sub-session was told beside its message: more of its system prompt.
ALTER TABLE sessions ADD COLUMN prompt_context TEXT;
-- For sessions of the goal mode of the program before this one: the session that the goal was set in.
ALTER TABLE sessions ADD COLUMN goal_worker TEXT;

-- What sessions have for each other: written together with the change that it tells of, taken by the receiver
-- together with what it makes of it, so that nothing is lost or taken twice. Nearly always empty.
CREATE TABLE mail (
  id INTEGER PRIMARY KEY, to_session TEXT NOT NULL, from_session TEXT NOT NULL, item TEXT NOT NULL
) STRICT;
