-- How a hybrid came to the model that answered, as JSON; empty for calls of other models.
ALTER TABLE calls ADD COLUMN decision TEXT;
