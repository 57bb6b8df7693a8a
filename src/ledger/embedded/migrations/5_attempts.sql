-- Upstreams that were asked and failed, in order, as JSON; empty where none did.
ALTER TABLE calls ADD COLUMN attempts TEXT;
