"""The M3 texts of the papers: they parse as printed, validate, print, and have the depths that the papers say.

docs/papers.md says which papers these are. What a paper leaves out with dots is filled in, nothing else is changed.
"""

import pytest

from cumulus.algebra.scope import maps_of
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.errors import LayoutError, M3SyntaxError
from cumulus.m3 import On, parse, read, validate
from cumulus.m3.dataflow import cycles, depths

EX_2_1 = """
ON +R(A,B){
    m1+=m2[A];
    m2[A]+=m3[B];
}
"""
EX_3_1 = """
ON +R(A){
   m3[C]+=m1[A]*m2[C];
}
ON +S(B){
   m2[B]+=1;
}
"""
EX_3_2 = """
ON +S(A) {
    m1[A]+=m2[A]
}
ON +T(B) {
    m2[B]+=m1[B];
}
"""
EX_3_3 = """
ON +S(A){
    m1[A]+=m2[A]*m3[A]
}
"""
COUNT_PER_CUSTOMER = """
on insert into Customer (cid, ...) {
  qO1[cid] += 1
}
on insert into Order (oid, cid, ...) {
  qL[cid, oid] += qO1[cid]
}
on insert into LineItem (oid, ...) {
  (cid: Customer.cid) q[cid] += qL[cid, oid]
}
"""
SAME_NATION = """
on insert into Customer (cid, nation) {
  (sid: Supplier.sid) q[sid] += qC[sid, nation];
  qS[nation] += 1
}
on insert into Supplier (sid, nation) {
  q[sid] += qS[nation];
  qC[sid, nation] += 1
}
"""
STAR = """
on insert into Date (datekey, year) {
 mPL[datekey, year] += 1
}
on insert into Part (partkey, partcat) {
 mDL[partkey, partcat] += 1
}
on insert into LineOrder
           (datekey, partkey, revenue) {
  (partcat: Part.partcat, year: Date.year)
  m[partcat, year] += revenue
                    * mDL[partkey, partcat]
                    * mPL[datekey, year]
}
"""
MATCHMAKING = """
on insert into Person (id, prop) {
  q[id] += q1[id, prop];

  (id2: Person.id) q[id2] += q2[id2, id, prop];

  ((id1, prop1): Person)
  q1[id1, prop1] +=
    if id1<>id and 0.9<=score(prop1, prop) then 1
    else 0;

  ((id2, prop2): Person)
  q2[id, id2, prop2] +=
    if id<>id2 and 0.9<=score(prop, prop2) then 1
    else 0
}
"""
TPCH_LIKE = """
ON Insert_LINEITEMS(OID, PRICE) DO {
  q[NATION] += m1[OID, NATION] * PRICE;
  m2[CID]    += m3[CID, OID] * PRICE;
  m4[OID]    += PRICE }
ON Insert_ORDERS(CID,OID,DISCOUNT) DO {
  q[NATION]    += DISCOUNT * m4[OID] * m5[CID,NATION];
  m1[OID,NATION] += DISCOUNT * m5[CID,NATION];
  m2[CID]      += DISCOUNT * m4[OID];
  m3[CID,OID]  += DISCOUNT }
ON Insert_CUSTOMERS(CID,NATION) DO {
  q[NATION]    += m2[CID];
  m1[OID,NATION] += m3[CID,OID];
  m5[CID,NATION] += 1}
"""
SLICE = "ON R(A) { m1[B] += m2[A,B] }"
FIGURE_3A = "on R(A) : m1[A,B] += m2[B]"
FIGURE_3B = "on R(A) : m1[A,B,C] += m2[B]*m3[C]"
SECTION_3_1 = "on R(A) : m1[B] += m2[A,B]"
SECTION_4_1 = """
ON R(A,B): m1[] += m2[A]
           m2[A] += m3[B]
"""
DATACUBE = """
+lineitems(oid, ...) {
   (cid: Customer.cid) m1[cid] += m5[cid, oid]
}
"""
UPDATE_RULE = "+R(x1, x2, x3) : Map K[x1, y] += 2 * x2 * L[x3, y]"

# Text, depths of the maps (None: cyclic), restricted M3?
PAPERS = {
    "semester paper, example 2.1": (EX_2_1, {"m3": 0, "m2": 1, "m1": 2}, True),
    "semester paper, example 3.1": (EX_3_1, {"m1": 0, "m2": 0, "m3": 1}, True),
    "semester paper, example 3.2": (EX_3_2, None, True),
    "semester paper, example 3.3": (EX_3_3, {"m2": 0, "m3": 0, "m1": 1}, True),
    "introduction, example 1": (COUNT_PER_CUSTOMER, {"qO1": 0, "qL": 1, "q": 2}, True),
    "introduction, example 2": (SAME_NATION, {"qC": 0, "qS": 0, "q": 1}, True),
    "introduction, example 3": (STAR, {"mPL": 0, "mDL": 0, "m": 1}, True),
    "introduction, example 4": (MATCHMAKING, {"domain_Person": 0, "q1": 1, "q2": 1, "q": 2}, False),
    "consistency paper, §2": (SLICE, {"m2": 0, "m1": 1}, True),
    "consistency paper, example 2.1": (TPCH_LIKE, {"m3": 0, "m4": 0, "m5": 0, "m1": 1, "m2": 1, "q": 2}, True),
    "consistency paper, §3.1, figure 3a": (FIGURE_3A, {"m2": 0, "m1": 1}, True),
    "consistency paper, §3.1, figure 3b": (FIGURE_3B, {"m2": 0, "m3": 0, "m1": 1}, True),
    "consistency paper, §3.1, slice": (SECTION_3_1, {"m2": 0, "m1": 1}, True),
    "consistency paper, §4.1": (SECTION_4_1, {"m3": 0, "m2": 1, "m1": 2}, True),
    "architecture, update rule": (UPDATE_RULE, {"L": 0, "K": 1}, True),
}


@pytest.mark.parametrize(("text", "depth", "restricted"), PAPERS.values(), ids=PAPERS)
def test_a_paper_program_parses_validates_prints_and_has_its_depths(text, depth, restricted):
    program = read(text, functions={"score"})
    assert parse(str(program)) == program
    assert validate(program, functions={"score"}).restricted is restricted
    if depth is None:
        assert cycles(program)
    else:
        assert depths(program) == depth


def test_semester_paper_example_3_2_is_cyclic_and_the_cycle_is_named():
    program = parse(EX_3_2)
    assert cycles(program) == (("m1", "m2"),)
    with pytest.raises(LayoutError, match="m1 → m2 → m1"):
        depths(program)


def test_semester_paper_example_2_1_its_instantiation_is_an_event_and_no_program():
    with pytest.raises(M3SyntaxError, match="An event with values is data"):
        parse("ON +R(10,20){ m1+=m2[10]; m2[10]+=m3[20]; }")


def test_consistency_paper_example_2_1_prints_as_it_is_printed():
    program = parse(TPCH_LIKE)
    assert str(program) == (
        """\
RELATION LINEITEMS(OID, PRICE);
RELATION ORDERS(CID, OID, DISCOUNT);
RELATION CUSTOMERS(CID, NATION);

ON +LINEITEMS(OID, PRICE) {
  q[NATION] += m1[OID, NATION] * PRICE;
  m2[CID]   += m3[CID, OID] * PRICE;
  m4[OID]   += PRICE;
}

ON +ORDERS(CID, OID, DISCOUNT) {
  q[NATION]       += DISCOUNT * m4[OID] * m5[CID, NATION];
  m1[OID, NATION] += DISCOUNT * m5[CID, NATION];
  m2[CID]         += DISCOUNT * m4[OID];
  m3[CID, OID]    += DISCOUNT;
}

ON +CUSTOMERS(CID, NATION) {
  q[NATION]       += m2[CID];
  m1[OID, NATION] += m3[CID, OID];
  m5[CID, NATION] += 1;
}
"""
    )
    for trigger in program.triggers:  # no statement reads what an earlier one writes
        for place, statement in enumerate(trigger.statements):
            assert maps_of(statement.term).isdisjoint(each.map for each in trigger.statements[:place])
    assert [len(trigger.statements) for trigger in program.triggers] == [3, 4, 3]


def test_domains_that_the_term_binds_add_nothing():
    for text in (COUNT_PER_CUSTOMER, SAME_NATION, STAR, DATACUBE):
        assert not any(definition.declared for definition in parse(text).maps)
    assert str(parse(DATACUBE).triggers[0].statements[0].term) == "m5[cid, oid].v"


def test_an_unbound_domain_becomes_a_map_of_its_own():
    program = parse(MATCHMAKING)
    [domain] = [definition for definition in program.maps if definition.declared]
    assert (domain.name, [column.name for column in domain.keys]) == ("domain_Person", ["id", "prop"])
    inserted, deleted = program.triggers
    assert (inserted.on, deleted.on) == (On.INSERT, On.DELETE)
    assert [str(statement.term) for statement in inserted.statements[2:]] == [
        "EXISTS(domain_Person[id1, prop1].n) * {id1 <> id} * {0.9 <= score(prop1, prop)}",
        "EXISTS(domain_Person[id2, prop2].n) * {id <> id2} * {0.9 <= score(prop, prop2)}",
        "1",
    ]


def run(text, events, functions=None):
    engine = Interpreter(parse(text), functions)
    engine.begin()
    for relation, row in events:
        engine.on_event(1, relation, row)
    engine.commit()
    return engine


def test_introduction_example_4_yields_only_zeros_as_printed():
    # Its q1 and q2 are read at the new person, where nothing has written yet: statements 3 and 4 write for those who
    # were there before. So nobody ever has a match.
    engine = run(MATCHMAKING, [("Person", (i, f"prop{i}")) for i in range(1, 5)], {"score": lambda a, b: 1.0})
    assert list(engine.items("q")) == []
    assert engine.size("q1") == 3
    assert engine.size("domain_Person") == 4


def test_introduction_example_4_gives_the_printed_table_when_written_over_persons():
    text = """
    on insert into Person (id, prop) {
      q[id]    += AggSum([], p[id2, prop2] * {id <> id2} * {0.9 <= score(prop, prop2)});
      q[id1]   += p[id1, prop1] * {id1 <> id} * {0.9 <= score(prop1, prop)};
      p[id, prop] += 1
    }
    """
    persons = [("Person", (i, f"prop{i}")) for i in range(1, 5)]
    three = run(text, persons[:3], {"score": lambda a, b: 1.0})
    assert dict(three.items("q")) == {(1,): (2,), (2,): (2,), (3,): (2,)}
    four = run(text, persons, {"score": lambda a, b: 1.0})
    assert dict(four.items("q")) == {(i,): (3,) for i in range(1, 5)}


def test_introduction_example_2_counts_customers_of_the_suppliers_nation():
    events = [
        ("Supplier", (1, "FR")),
        ("Customer", (10, "FR")),
        ("Customer", (11, "DE")),
        ("Supplier", (2, "FR")),
        ("Customer", (12, "FR")),
    ]
    assert dict(run(SAME_NATION, events).items("q")) == {(1,): (2,), (2,): (2,)}


def test_consistency_paper_example_2_1_computes_its_query():
    events = [
        ("CUSTOMERS", (1, "FR")),
        ("ORDERS", (1, 100, 2)),
        ("LINEITEMS", (100, 30)),
        ("LINEITEMS", (200, 5)),
        ("ORDERS", (2, 200, 3)),
        ("CUSTOMERS", (2, "DE")),
        ("ORDERS", (1, 200, 1)),
    ]
    assert dict(run(TPCH_LIKE, events).items("q")) == {("FR",): (65,), ("DE",): (15,)}
