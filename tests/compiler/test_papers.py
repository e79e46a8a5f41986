"""The compilations printed in the papers (docs/papers.md)."""

from __future__ import annotations

import pytest

from cumulus import m3
from cumulus.compiler import compile_sql
from support.same_program import same_program


def with_deletes(text: str) -> m3.Program:
    """A printed program of insertions, with the deletions that are the same times −1."""
    inserts = m3.parse(text)
    deletes = m3.parse(text.replace("ON +", "ON -").replace("+= ", "+= -1 * "))
    return m3.Program(inserts.relations, inserts.maps, (), inserts.triggers + deletes.triggers)


CUSTOMERS = """
CREATE TABLE customers (cid INT NOT NULL {c}, nation INT NOT NULL);
CREATE TABLE orders (cid INT NOT NULL {o}, oid INT NOT NULL {k}, discount DECIMAL(15,2) NOT NULL);
CREATE TABLE lineitems (oid INT NOT NULL {l}, price DECIMAL(15,2) NOT NULL);
"""


def customers(trusted: bool) -> str:
    if not trusted:
        return CUSTOMERS.format(c="", o="", k="", l="")
    return CUSTOMERS.format(
        c="PRIMARY KEY", o="REFERENCES customers (cid) RELY", k="PRIMARY KEY", l="REFERENCES orders (oid) RELY"
    )


REVENUE = """
CREATE VIEW q AS
SELECT  c.nation, SUM(o.discount * l.price) AS s
FROM    CUSTOMERS c, ORDERS o, LINEITEMS l
WHERE   c.cid = o.cid AND o.oid = l.oid
GROUP BY c.nation;
"""
COUNTS = """
CREATE VIEW q AS
SELECT   C.cid, SUM(1) AS s
FROM     customers C, orders O, lineitems L
WHERE    C.cid=O.cid AND O.oid=L.oid
GROUP BY C.cid;
"""


def counts(program: m3.Program) -> tuple[int, int]:
    """The number of maps, and of statements for insertions."""
    statements = [t for t in program.triggers if t.on is m3.On.INSERT]
    return len(program.maps), sum(len(trigger.statements) for trigger in statements)


def test_consistency_paper_example_2_1():
    """As printed: q, m1 … m5, ten statements, deletions the same with −1."""
    printed = with_deletes("""
ON +lineitems(OID, PRICE) {
  q[NATION] += m1[OID, NATION] * PRICE;
  m2[CID]   += m3[CID, OID] * PRICE;
  m4[OID]   += PRICE }
ON +orders(CID,OID,DISCOUNT) {
  q[NATION]      += DISCOUNT * m4[OID] * m5[CID,NATION];
  m1[OID,NATION] += DISCOUNT * m5[CID,NATION];
  m2[CID]        += DISCOUNT * m4[OID];
  m3[CID,OID]    += DISCOUNT }
ON +customers(CID,NATION) {
  q[NATION]      += m2[CID];
  m1[OID,NATION] += m3[CID,OID];
  m5[CID,NATION] += 1 }
""")
    program = compile_sql(customers(trusted=False) + REVENUE, form="paper")
    assert same_program(program, printed)
    assert counts(program) == (6, 10)
    # m2 as the paper writes it: SELECT o.cid, SUM(o.discount * l.price) … GROUP BY o.cid
    m2 = next(m for m in program.maps if [k.name for k in m.keys] == ["cid"])
    assert m2.sql == (
        "SELECT t0.cid AS cid, SUM(t0.discount * t1.price) AS v "
        "FROM orders t0, lineitems t1 WHERE t0.oid = t1.oid GROUP BY t0.cid"
    )


def test_introduction_example_1_with_trusted_keys():
    printed = with_deletes("""
ON +customers(cid, nation) { qO1[cid] += 1 }
ON +orders(cid, oid, discount) { qL[cid, oid] += qO1[cid] }
ON +lineitems(oid, price) { q[cid] += qL[cid, oid] }
""")
    program = compile_sql(customers(trusted=True) + COUNTS, form="paper")
    assert same_program(program, printed)
    assert counts(program) == (3, 3)


def test_introduction_example_1_without_keys():
    assert counts(compile_sql(customers(trusted=False) + COUNTS, form="paper")) == (6, 10)


def test_introduction_example_2():
    printed = with_deletes("""
ON +customer(cid, nation) {
  q[sid] += qC[sid, nation];
  qS[nation] += 1 }
ON +supplier(sid, nation) {
  q[sid] += qS[nation];
  qC[sid, nation] += 1 }
""")
    program = compile_sql(
        """
CREATE TABLE customer (cid INT NOT NULL, nation INT NOT NULL);
CREATE TABLE supplier (sid INT NOT NULL, nation INT NOT NULL);
CREATE VIEW q AS SELECT S.sid, SUM(1) AS s FROM Customer C, Supplier S WHERE C.nation = S.nation GROUP BY S.sid;
""",
        form="paper",
    )
    assert same_program(program, printed)


STAR = """
CREATE TABLE date (datekey INT NOT NULL {key}, year INT NOT NULL);
CREATE TABLE part (partkey INT NOT NULL {key}, partcat INT NOT NULL);
CREATE TABLE lineorder (datekey INT NOT NULL {date}, partkey INT NOT NULL {part}, revenue INT NOT NULL);
CREATE VIEW m AS
SELECT   P.partcat, D.year, SUM(revenue) AS s
FROM     Date D, Part P, LineOrder L
WHERE    D.datekey=L.datekey
AND      P.partkey=L.partkey
GROUP BY P.partcat, D.year;
"""


def test_introduction_example_3_with_trusted_keys():
    printed = with_deletes("""
ON +"date"(datekey, year) { mPL[datekey, year] += 1 }
ON +part(partkey, partcat) { mDL[partkey, partcat] += 1 }
ON +lineorder(datekey, partkey, revenue) {
  m[partcat, year] += revenue * mDL[partkey, partcat] * mPL[datekey, year] }
""")
    script = STAR.format(key="PRIMARY KEY", date="REFERENCES date RELY", part="REFERENCES part RELY")
    program = compile_sql(script, form="paper")
    assert same_program(program, printed)
    assert counts(program) == (3, 3)


def test_introduction_example_3_without_keys():
    assert counts(compile_sql(STAR.format(key="", date="", part=""), form="paper")) == (6, 10)


def test_keys_alone_save_nothing():
    """A primary key without a trusted foreign key: an order before its customer would be lost."""
    script = STAR.format(key="PRIMARY KEY", date="", part="")
    assert counts(compile_sql(script, form="paper")) == (6, 10)
    trusted = STAR.format(key="PRIMARY KEY", date="REFERENCES date RELY", part="REFERENCES part RELY")
    assert counts(compile_sql(trusted, form="paper", rely=False)) == (6, 10)


def test_a_different_program_is_different():
    """The comparison can fail: one changed statement is seen."""
    program = compile_sql(customers(trusted=True) + COUNTS, form="paper")
    other = with_deletes("""
ON +customers(cid, nation) { qO1[cid] += 1 }
ON +orders(cid, oid, discount) { qL[cid, oid] += qO1[oid] }
ON +lineitems(oid, price) { q[cid] += qL[cid, oid] }
""")
    assert not same_program(program, other)


@pytest.mark.parametrize("script", [customers(trusted=False) + REVENUE, STAR.format(key="", date="", part="")])
def test_sums_over_equality_joins_compile_to_restricted_m3(script):
    """The three rules of the Cumulus consistency paper, §2.1."""
    report = m3.validate(compile_sql(script, form="paper"))
    assert report.restricted, report
