"""SQL text to `cumulus.sql.ast`: the only room that knows sqlglot."""
