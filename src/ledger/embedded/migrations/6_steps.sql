-- What was done for a call in which the gateway ran tools, in order, as JSON; empty for others.
ALTER TABLE calls ADD COLUMN steps TEXT;
