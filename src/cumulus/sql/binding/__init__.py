"""`cumulus.sql.ast` to calculus terms: names, types, groups, sub-queries. Knows no sqlglot."""
