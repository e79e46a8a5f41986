"""Events on their way to triggers: Python rows, Arrow columns, upserts; keys and references checked on the way."""
