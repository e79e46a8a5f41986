"""Queries over base tables that a view's rows can answer.

`view_answer` compares a query with the views of a program by meaning: both become sums of products over the base
tables, and equal canonical forms mean equal numbers (`forms`). The query is taken apart and put together again as
DuckDB's tree (`query_shape`, `rewriting`), so that everything but its aggregates and grouping columns stays as it is.
"""

from cumulus.view_answers.answering import NoAnswer, ViewAnswer, view_answer
from cumulus.view_answers.query_shape import table_names

__all__ = ["NoAnswer", "ViewAnswer", "table_names", "view_answer"]
