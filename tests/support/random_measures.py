"""Random queries with MEASURE over a view, and the same questions in plain SQL over the rows behind it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from hypothesis import strategies as st

from support.random_folds import FoldedView

_CALL = re.compile(r"(?!COUNT)\w+\([^()]*\)")
"""One aggregate of something simple, to which a FILTER can be added; over no rows a measure is NULL, a count is not."""


class Asked(NamedTuple):
    """A question in both forms, the constructs in it, and which kinds of measures it has."""

    measured: str
    plain: str
    constructs: frozenset[str]
    kinds: frozenset[str]


def counted(view: FoldedView) -> FoldedView:
    """The view with a count of its rows as its last column."""
    return replace(view, calls=[*view.calls, ("additive", "COUNT(*)")])


@st.composite
def asked(draw: st.DrawFn, view: FoldedView, name: str = "v") -> Asked:
    """A question about a view that is `counted`."""
    constructs: set[str] = set()
    keys = range(len(view.keys))
    shapes = [f"{{k{place}}}" for place in keys] + [f"{{k{place}}} IS NULL" for place in keys]
    shapes += [as_text(f"{{k{place}}}") for place in keys]
    groups = draw(st.lists(st.sampled_from(shapes), max_size=3, unique=True))
    chosen = draw(st.lists(st.integers(0, len(view.calls) - 1), min_size=1, max_size=3, unique=True))
    items = [f"{group} AS g{place}" for place, group in enumerate(groups)]
    for place, call in enumerate(chosen):
        condition = ""
        if _CALL.fullmatch(view.calls[call][1]) and draw(st.integers(0, 7)) == 0:
            condition = f" FILTER (WHERE {draw(_condition(view))})"
            constructs.add("FILTER")
        items.append(f"{{m{call}}}{condition} AS x{place}")
    conditions = draw(st.lists(_condition(view), max_size=2))
    constructs |= {"WHERE"} if conditions else set()
    kind = draw(st.sampled_from(["plain", "ROLLUP", "CUBE", "GROUPING SETS", "ALL"])) if groups else "total"
    constructs.add(kind)
    listed = ", ".join(f"g{place}" for place in range(len(groups)))
    match kind:
        case "total":
            grouping = ""
        case "plain":
            grouping = f" GROUP BY {listed}"
        case "ALL":
            grouping = " GROUP BY ALL"
        case "GROUPING SETS":
            grouping = f" GROUP BY GROUPING SETS (({listed}), (g0))"
        case _:
            grouping = f" GROUP BY {kind} ({listed})"
    having = [f"{{m{len(view.calls) - 1}}} > {draw(st.integers(0, 2))}"]
    if draw(st.integers(0, 3)) == 0:
        constructs.add("HAVING")
        having.append(f"{{m{draw(st.integers(0, len(view.calls) - 1))}}} IS NOT NULL")
    form = f"SELECT {', '.join(items)} FROM {{source}}{{where}}{grouping} HAVING {' AND '.join(having)}"
    outside = draw(st.integers(0, 5))
    if outside == 0:
        constructs.add("sub-query")
        form = f"SELECT COUNT(*) AS n, COUNT(x0) AS m FROM ({form}) z"
    elif outside == 1:
        constructs.add("WITH")
        form = f"WITH z AS ({form}) SELECT * FROM z WHERE x0 IS NOT NULL"
    ours = {f"k{place}": f"k{place}" for place in keys} | {f"m{n}": f"MEASURE(a{n})" for n in range(len(view.calls))}
    theirs = {f"k{place}": f"({key})" for place, key in enumerate(view.keys)}
    theirs |= {f"m{n}": call for n, (_, call) in enumerate(view.calls)}
    where = f" WHERE {' AND '.join(f'({each})' for each in conditions)}" if conditions else ""
    whole = [f"({each})" for each in [*view.wheres, *conditions]]
    plain_where = f" WHERE {' AND '.join(whole)}" if whole else ""
    return Asked(
        _filled(_filled(form, {"where": where, "source": name}), ours),
        _filled(_filled(form, {"where": plain_where, "source": view.source}), theirs),
        frozenset(constructs),
        frozenset(view.calls[call][0] for call in chosen),
    )


def as_text(value: str) -> str:
    """A value as text; of -0.0 and 0.0, which are one group, a view may show either."""
    return f"REPLACE(CAST({value} AS VARCHAR), '-0.0', '0.0')"


def _filled(form: str, names: dict[str, str]) -> str:
    for name, text in names.items():
        form = form.replace("{" + name + "}", text)
    return form


@st.composite
def _condition(draw: st.DrawFn, view: FoldedView) -> str:
    place = draw(st.integers(0, len(view.keys) - 1))
    forms = [
        "{k} IS NOT NULL",
        "{k} IS NULL",
        f"LENGTH({as_text('{k}')}) < 4",
        "{k} = {k}",
        f"{as_text('{k}')} > '1'",
    ]
    return draw(st.sampled_from(forms)).replace("{k}", f"{{k{place}}}")
