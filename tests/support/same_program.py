"""Equality of M3 programs up to the names of maps and variables and the order of statements, factors and keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

from cumulus.algebra.scope import rename, variables_of
from cumulus.algebra.terms import MapRead, Product, Term
from cumulus.m3.program import Program, Statement, Trigger


def factors(term: Term) -> tuple[Term, ...]:
    return term.parts if isinstance(term, Product) else (term,)


def shape(program: Program) -> dict[str, int]:
    """Map → number of keys, for the maps that the triggers mention."""
    found: dict[str, int] = {}
    for trigger in program.triggers:
        for statement in trigger.statements:
            found[statement.map] = len(statement.keys)
            for factor in factors(statement.term):
                if isinstance(factor, MapRead):
                    found[factor.map] = len(factor.keys)
    return found


def statement_form(trigger: Trigger, statement: Statement, naming: dict[str, tuple[str, tuple[int, ...]]]) -> str:
    """A statement with its maps renamed, its event variables numbered and its loop variables in the least order."""
    events = {name: f"e{index}" for index, name in enumerate(trigger.variables)}
    loops = sorted({*statement.keys, *variables_of(statement.term)} - set(events))

    def form(names: dict[str, str]) -> str:
        def read(factor: Term) -> str:
            if isinstance(factor, MapRead):
                name, order = naming[factor.map]
                keys = [str(rename(factor.keys[place], names)) for place in order]
                return f"{name}[{','.join(keys)}]"
            return str(rename(factor, names))

        name, order = naming[statement.map]
        target = ",".join(names.get(statement.keys[place], statement.keys[place]) for place in order)
        return f"{name}[{target}] {statement.op} {' * '.join(sorted(read(f) for f in factors(statement.term)))}"

    return min(
        form(events | dict(zip(loops, order, strict=True)))
        for order in permutations([f"l{index}" for index in range(len(loops))])
    )


def forms(program: Program, naming: dict[str, tuple[str, tuple[int, ...]]]) -> dict[tuple[str, str], list[str]]:
    return {
        (trigger.on.value, trigger.relation): sorted(statement_form(trigger, s, naming) for s in trigger.statements)
        for trigger in program.triggers
    }


def namings(left: dict[str, int], right: dict[str, int]) -> Iterator[dict[str, tuple[str, tuple[int, ...]]]]:
    """Every way to call the maps on the left by the names on the right, with every order of keys."""
    names = sorted(left)
    for order in permutations(sorted(right)):
        if all(left[mine] == right[theirs] for mine, theirs in zip(names, order, strict=True)):
            for places in product(*(permutations(range(left[name])) for name in names)):
                yield {n: (theirs, place) for n, theirs, place in zip(names, order, places, strict=True)}


def same_program(left: Program, right: Program) -> bool:
    """Whether two programs are equal up to naming and order."""
    mine, theirs = shape(left), shape(right)
    if sorted(mine.values()) != sorted(theirs.values()):
        return False
    plain = {name: (name, tuple(range(width))) for name, width in theirs.items()}
    wanted = forms(right, plain)
    return any(forms(left, naming) == wanted for naming in namings(mine, theirs))
