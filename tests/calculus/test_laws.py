"""Laws of the calculus, against the reference evaluator."""

from decimal import localcontext

from hypothesis import given, settings

from cumulus.algebra.scope import inputs, outputs
from cumulus.algebra.terms import AggSum, Atom, Lift, Var, product_of
from cumulus.calculus.delta import RelationChange, delta
from cumulus.calculus.evaluate import evaluate
from cumulus.calculus.simplify import PASSES, simplify
from cumulus.catalog.types import EXACT
from support.random_terms import ARITIES, databases, events, products, terms
from support.tiers import examples


def difference(after, before):
    result = dict(after)
    for binding, number in before.items():
        result[binding] = result.get(binding, 0) - number
    return {binding: number for binding, number in result.items() if number}


def copy(database):
    return {name: dict(rows) for name, rows in database.items()}


@settings(max_examples=examples(300), deadline=None)
@given(terms(), databases, events)
def test_the_delta_is_the_change_of_the_value(term, database, event):
    """value(Δ) = value(after) − value(before), self-joins, nesting and deletes included."""
    variables = tuple(f"e{index}" for index in range(ARITIES[event.relation]))
    change = RelationChange(event.relation, event.sign, variables)
    after = copy(database)
    rows = after.setdefault(event.relation, {})
    rows[event.row] = rows.get(event.row, 0) + event.sign
    with localcontext(EXACT):
        expected = difference(evaluate(term, after), evaluate(term, database))
        found = evaluate(delta(term, change), database, dict(zip(variables, event.row, strict=True)))
    assert found == expected


@settings(max_examples=examples(200), deadline=None)
@given(terms(), databases, databases)
def test_the_delta_of_a_batch_is_the_change_of_the_value(term, database, batch):
    net = dict(batch["r"])
    after = copy(database)
    for row, count in net.items():
        after["r"][row] = after["r"].get(row, 0) + count
    with localcontext(EXACT):
        expected = difference(evaluate(term, after), evaluate(term, database))
        found = evaluate(delta(term, RelationChange("r", 0)), database, batch={"r": net})
    assert found == expected


@settings(max_examples=examples(300), deadline=None)
@given(products(), databases, events)
def test_every_pass_keeps_the_value_of_the_aggregate_around_it(term, database, event):
    variables = tuple(f"e{index}" for index in range(ARITIES[event.relation]))
    changed = delta(term, RelationChange(event.relation, event.sign, variables))
    keys = frozenset(outputs(term)[:1])
    bound = dict(zip(variables, event.row, strict=True))
    with localcontext(EXACT):
        expected = evaluate(AggSum(tuple(keys), changed), database, bound)
        for name, one in PASSES:
            changed = one(changed, keys, frozenset(variables))
            assert evaluate(AggSum(tuple(keys), changed), database, bound) == expected, name
        changed = simplify(changed, keys, frozenset(variables))
        assert evaluate(AggSum(tuple(keys), changed), database, bound) == expected


@settings(max_examples=examples(100), deadline=None)
@given(terms())
def test_terms_of_the_generator_are_closed(term):
    assert not inputs(term)


def test_a_deletion_is_not_a_negated_insertion_under_a_self_join():
    """Insert and delete triggers are compiled separately."""
    square = AggSum((), product_of([Atom("t", ("x",)), Atom("t", ("x",))]))
    database = {"t": {(1,): 3}}
    inserted = evaluate(delta(square, RelationChange("t", +1, ("e",))), database, {"e": 1})
    deleted = evaluate(delta(square, RelationChange("t", -1, ("e",))), database, {"e": 1})
    assert (inserted, deleted) == ({(): 7}, {(): -5})


def test_a_lifted_key_keeps_its_lift():
    term = product_of([Lift("x", Var("e")), Atom("t", ("x",))])
    assert str(simplify(term, frozenset("x"), frozenset("e"))) == "(x := e) * t(e)"
