"""M3 programs from text.

docs/m3.md is the reference of the grammar. Here is what the text says; `cumulus.m3.shorthand` makes triggers of rules
in the spellings of the papers, and `cumulus.m3.infer` adds what hand-written programs leave undeclared.
"""

from __future__ import annotations

from typing import Any

from cumulus.algebra.lexer import (
    Token,
    TokenKind,
    TokenStream,
    read_call_name,
    read_count,
    read_type,
    read_value_column,
    read_variable,
    read_variables,
)
from cumulus.algebra.parser import TermReader
from cumulus.algebra.terms import Const, Lift, Scalar, Var, product_of
from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.schema import Column, ForeignKey, Relation
from cumulus.m3.infer import complete
from cumulus.m3.program import (
    CubeDef,
    DimensionDef,
    Entry,
    LevelDef,
    MapDef,
    On,
    OrderItem,
    Program,
    Statement,
    ViewDef,
)
from cumulus.m3.shorthand import Domain, Rule, RuleStatement, make_triggers
from cumulus.m3.source_map import Places
from cumulus.scalars.python_code import canonical


def parse(text: str, name: str = "") -> Program:
    """Read a program.

    Undeclared relations and maps are inferred, bare map names are resolved, and every read and statement names its
    value column (`cumulus.m3.infer.canonical`), so that ``parse(str(program)) == program`` for canonical programs.

    In errors the text is called `name`, usually that of its file.

    Raises
    ------
    M3SyntaxError
        With line, column, and what was expected. What the program means is checked by `cumulus.m3.validate`.

    Examples
    --------
    >>> program = parse("ON +R(a) { m1[] += m2[a]; m2[a] += 1 }")
    >>> [definition.name for definition in program.maps]
    ['m1', 'm2']
    """
    return parse_with_places(text, name)[0]


def parse_with_places(text: str, name: str = "") -> tuple[Program, Places]:
    """Read a program, and say where its parts stand, for `cumulus.m3.validate`."""
    tokens = TokenStream(text, name)
    places = Places(text, name, tokens.tokens)
    _mark_rules(tokens.tokens)
    declared, known = _relations_ahead(tokens.tokens)
    terms = TermReader(tokens, known.__contains__)
    declarations = _Declarations(terms)
    reader = _RuleReader(terms, declared)
    rules: list[Rule] = []
    while tokens.peek().kind is not TokenKind.END:
        start = tokens.position
        if tokens.accept(";"):
            continue
        if tokens.at_word("ON"):
            rules.append(reader.rule())
            continue
        part = declarations.read()
        places.spans[part] = (start, tokens.position)  # of two of one name, the second is the wrong one
        if tokens.peek().kind is not TokenKind.END:
            tokens.expect(";", "after the declaration")
    relations, maps, triggers = make_triggers(rules, declarations.relations, declarations.maps, tokens, places)
    views, kept, functions = declarations.views, declarations.kept, declarations.functions
    cubes = tuple(declarations.cubes)
    return complete(Program(relations, maps, tuple(views), triggers, tuple(kept), tuple(functions), cubes)), places


class _Declarations:
    """What a program declares, as far as it is read: RELATION, MAP, VIEW, CUBE and FUNCTION."""

    def __init__(self, terms: TermReader) -> None:
        self.tokens = terms.tokens
        self.terms = terms
        self.relations: list[Relation] = []
        self.kept: list[tuple[str, str]] = []
        self.maps: list[MapDef] = []
        self.views: list[ViewDef] = []
        self.functions: list[FunctionSignature] = []
        self.cubes: list[CubeDef] = []

    def read(self) -> tuple[str, str]:
        """Read a declaration; return its kind and its name."""
        tokens = self.tokens
        if tokens.accept_word("RELATION"):
            return "relation", self._relation()
        if tokens.accept_word("MAP"):
            return "map", self._map()
        if tokens.accept_word("VIEW"):
            return "view", self._view()
        if tokens.accept_word("CUBE"):
            return "cube", self._cube()
        if tokens.accept_word("FUNCTION"):
            return "function", self._function()
        tokens.fail("expected RELATION, FUNCTION, MAP, VIEW, CUBE or ON")

    def _relation(self) -> str:
        tokens = self.tokens
        name = read_call_name(tokens, "a relation")
        columns = self._columns("(", ")")
        key: tuple[str, ...] = ()
        key_rely = static = False
        keep, changes = "auto", "rarely"
        foreign: list[ForeignKey] = []
        while not tokens.next_is(";") and tokens.peek().kind is not TokenKind.END:
            if tokens.accept_word("KEY"):
                key, key_rely = read_variables(tokens, "(", ")"), tokens.accept_word("RELY")
            elif tokens.accept_word("FOREIGN"):
                foreign.append(self._foreign_key())
            elif tokens.accept_word("STATIC"):
                static = True
            elif tokens.accept_word("KEPT"):
                self.kept.append((name, read_call_name(tokens, "a map")))
            elif tokens.accept_word("KEEP"):
                if not tokens.at_word("ALL", "NONE", "AUTO"):
                    tokens.fail("expected ALL, NONE or AUTO")
                keep = tokens.take().text.lower()
            elif tokens.accept_word("CHANGES"):
                tokens.expect_word("OFTEN")
                changes = "often"
            else:
                tokens.fail("expected KEY, FOREIGN KEY, STATIC, KEEP, KEPT, CHANGES or ';'")
        self.relations.append(Relation(name, columns, key, key_rely, tuple(foreign), static, keep, changes))
        return name

    def _foreign_key(self) -> ForeignKey:
        self.tokens.expect_word("KEY")
        columns = read_variables(self.tokens, "(", ")")
        self.tokens.expect_word("REFERENCES")
        parent = read_call_name(self.tokens, "a relation")
        parent_columns = read_variables(self.tokens, "(", ")")
        rely = self.tokens.accept_word("RELY")
        return ForeignKey(columns, parent, parent_columns, rely, self.tokens.accept_word("ENFORCED"))

    def _columns(self, opening: str, closing: str) -> tuple[Column, ...]:
        return tuple(self.tokens.listed(opening, closing, self._column))

    def _column(self) -> Column:
        tokens = self.tokens
        name = read_variable(tokens, "a column")
        typed = tokens.peek().is_name and not tokens.at_word("NOT")
        column_type = read_type(tokens) if typed else None
        not_null = tokens.accept_word("NOT")
        if not_null:
            tokens.expect_word("NULL")
        return Column(name, column_type, not_null)

    def _map(self) -> str:
        tokens = self.tokens
        name = read_call_name(tokens, "a map")
        keys, values = self._columns("[", "]"), self._columns("(", ")")
        count = read_variable(tokens) if tokens.accept_word("COUNT") else ""
        ordered = read_variable(tokens) if tokens.accept_word("ORDERED") else ""
        initial = tokens.separated(self._entry) if tokens.accept_word("START") else []
        definitions = tokens.separated(self.terms.value) if tokens.accept("=") else []
        sql = ""
        if tokens.accept_word("AS"):
            if tokens.peek().kind is not TokenKind.STRING:
                tokens.fail("expected the definition in SQL, in quotes")
            sql = tokens.take().text
        if not tokens.next_is(";") and tokens.peek().kind is not TokenKind.END:
            tokens.fail("expected COUNT, ORDERED, START, a definition, AS or ';'")
        self.maps.append(MapDef(name, keys, values, count, ordered, tuple(definitions), sql, initial=tuple(initial)))
        return name

    def _entry(self) -> Entry:
        """Read an entry of START: key, a colon, values."""
        tokens = self.tokens
        tokens.expect("(", "before an entry")
        key = [] if tokens.next_is(":") else tokens.separated(self._literal)
        tokens.expect(":", "between key and values")
        values = tokens.separated(self._literal)
        tokens.expect(")", "after the entry")
        return tuple(key), tuple(values)

    def _literal(self) -> Any:
        """Read a plain value."""
        token, found = self.tokens.peek(), self.terms.scalar()
        if not isinstance(found, Const):
            self.tokens.raise_syntax_error(
                "expected a literal", token, "An entry that is there from the start has plain values."
            )
        return canonical(found.value)

    def _view(self) -> str:
        tokens = self.tokens
        name = read_call_name(tokens, "a view")
        columns = self._columns("(", ")")
        tokens.expect_word("FROM")
        maps = tokens.separated(lambda: read_call_name(tokens, "a map"))
        tokens.expect_word("SELECT")
        select = tokens.separated(self.terms.scalar)
        where = self.terms.scalar() if tokens.accept_word("WHERE") else None
        repeat = self.terms.scalar() if tokens.accept_word("REPEAT") else None
        order: list[OrderItem] = []
        if tokens.accept_word("ORDER"):
            tokens.expect_word("BY")
            order = tokens.separated(self._order_item)
        limit = read_count(tokens) if tokens.accept_word("LIMIT") else None
        offset = read_count(tokens) if tokens.accept_word("OFFSET") else 0
        self.views.append(
            ViewDef(name, columns, tuple(maps), tuple(select), where, repeat, tuple(order), limit, offset)
        )
        return name

    def _cube(self) -> str:
        tokens = self.tokens
        name = read_call_name(tokens, "a cube")
        dimensions: list[DimensionDef] = []
        levels: list[LevelDef] = []
        while tokens.accept_word("DIMENSION"):
            dimensions.append(DimensionDef(read_variable(tokens, "a dimension"), read_variables(tokens, "(", ")")))
        while tokens.accept_word("LEVEL"):
            columns = read_variables(tokens, "(", ")")
            tokens.expect_word("FROM")
            levels.append(LevelDef(columns, read_call_name(tokens, "a view"), tokens.accept_word("KEPT")))
        self.cubes.append(CubeDef(name, tuple(dimensions), tuple(levels)))
        return name

    def _function(self) -> str:
        tokens = self.tokens
        name = read_call_name(tokens, "a function")
        parameters = tokens.listed("(", ")", lambda: read_type(tokens))
        result = read_type(tokens)
        called = tokens.accept_word("CALLED")
        for word in ("ON", "NULL", "INPUT") if called else ():
            tokens.expect_word(word)
        self.functions.append(FunctionSignature(name, tuple(parameters), result, called))
        return name

    def _order_item(self) -> OrderItem:
        expression: Scalar = self.terms.scalar()
        descending = self.tokens.accept_word("DESC")
        if not descending:
            self.tokens.accept_word("ASC")
        nulls_first = False
        if self.tokens.accept_word("NULLS"):
            if not self.tokens.at_word("FIRST", "LAST"):
                self.tokens.fail("expected FIRST or LAST")
            nulls_first = self.tokens.take().is_word("FIRST")
        return OrderItem(expression, descending, nulls_first)


class _RuleReader:
    """Reads rules, ``ON +r(x) { … }``; of the names `declared` none is taken for an event and its relation."""

    def __init__(self, terms: TermReader, declared: set[str]) -> None:
        self.tokens = terms.tokens
        self.terms = terms
        self._declared = declared

    def rule(self) -> Rule:
        """Read a rule."""
        tokens, start = self.tokens, self.tokens.position
        tokens.expect_word("ON")
        on, relation = self._event()
        variables, open_ended = ([], False) if on is On.BATCH else self._event_variables()
        rule = Rule(on, relation, variables, open_ended, [], (start, tokens.position))
        tokens.accept_word("DO")
        colon = tokens.accept(":")
        if tokens.next_is("{"):
            tokens.take()
            while not tokens.accept("}"):
                rule.statements.append(self._statement())
                if not tokens.accept(";") and not tokens.accept(",") and not self._statement_ahead():
                    tokens.expect("}", "or ';' after the statement")
                    break
        elif colon:
            rule.statements.append(self._statement())
            while tokens.accept(";") or self._statement_ahead():
                if self._statement_ahead():
                    rule.statements.append(self._statement())
        else:
            tokens.fail("expected '{' before the statements")
        return rule

    def _event(self) -> tuple[On, str]:
        tokens = self.tokens
        if tokens.next_is("+", "-"):
            on = On.INSERT if tokens.take().text == "+" else On.DELETE
            return on, read_call_name(tokens, "a relation")
        if tokens.at_word("BATCH") and tokens.peek(1).is_name:
            tokens.take()
            return On.BATCH, read_call_name(tokens, "a relation")
        if tokens.at_word("INSERT", "DELETE") and tokens.peek(1).is_word("INTO", "FROM"):
            on = On.INSERT if tokens.take().is_word("INSERT") else On.DELETE
            tokens.expect_word("INTO" if on is On.INSERT else "FROM")
            return on, read_call_name(tokens, "a relation")
        if not tokens.peek().is_name:
            tokens.fail("expected an event: +r(…), -r(…), BATCH r or insert into r(…)")
        return _named_event(tokens.take().text, self._declared)

    def _event_variables(self) -> tuple[list[str], bool]:
        tokens, variables = self.tokens, list[str]()
        tokens.expect("(", "before the event variables")
        while not tokens.accept(")"):
            if variables:
                tokens.expect(",", "or ')'")
            if tokens.accept("..."):
                tokens.expect(")", "after '...'")
                return variables, True
            if tokens.peek().kind is TokenKind.NUMBER:
                tokens.fail("expected an event variable", hint="An event with values is data, not a part of a program.")
            variables.append(read_variable(tokens, "an event variable"))
        return variables, False

    def _statement_ahead(self) -> bool:
        tokens = self.tokens
        if tokens.next_is("("):
            return True
        if not tokens.peek().is_name:
            return False
        if tokens.at_word("MAP") and tokens.peek(1).is_name:
            ahead = 2
            if tokens.peek(ahead).is_sign("["):
                while not tokens.peek(ahead).is_sign("]") and tokens.peek(ahead).kind is not TokenKind.END:
                    ahead += 1
                ahead += 1
            return tokens.peek(ahead).is_sign("+=", ":=", ".")
        return tokens.peek(1).is_sign("[", "+=", ":=", ".")

    def _statement(self) -> RuleStatement:
        tokens, start = self.tokens, self.tokens.position
        domains = self._domains() if tokens.next_is("(") else []
        if tokens.at_word("MAP") and tokens.peek(1).is_name:
            tokens.take()
        name = read_call_name(tokens, "the map to change")
        listed = tokens.listed("[", "]", self.terms.scalar, "between keys") if tokens.next_is("[") else []
        keys = [key if isinstance(key, Var) else Var(f"key_{place}") for place, key in enumerate(listed, 1)]
        # A key that is no variable is one that the term binds.
        fixed = [Lift(own.name, key) for own, key in zip(keys, listed, strict=True) if own is not key]
        column = read_value_column(tokens)
        if not tokens.next_is("+=", ":="):
            tokens.fail("expected '+=' or ':='")
        op = tokens.take().text
        term = self.terms.value()
        term = product_of([*fixed, term]) if fixed else term
        statement = Statement(name, column, tuple(key.name for key in keys), op, term)
        return RuleStatement(statement, domains, (start, tokens.position))

    def _domains(self) -> list[Domain]:
        """Read ``(x: R.c, y: S.d)`` or ``((x, y): R)``: what loop variables range over, as 002 writes it."""
        return self.tokens.listed("(", ")", self._domain)

    def _domain(self) -> Domain:
        tokens = self.tokens
        whole = tokens.next_is("(")
        variables = read_variables(tokens, "(", ")") if whole else (read_variable(tokens),)
        tokens.expect(":", "and the relation that the variables range over")
        place, column = tokens.peek(), ""
        relation = read_call_name(tokens, "a relation")
        if not whole:
            tokens.expect(".", "and a column")
            column = read_variable(tokens, "a column")
        return Domain(variables, relation, column, place)


def _named_event(name: str, declared: set[str]) -> tuple[On, str]:
    """Return the event that 003 calls ``Insert_R``, ``Delete_R`` or just ``R``."""
    for prefix, on in (("insert_", On.INSERT), ("delete_", On.DELETE)):
        if name.lower().startswith(prefix) and len(name) > len(prefix) and name not in declared:
            return on, name[len(prefix) :]
    return On.INSERT, name


def _mark_rules(tokens: list[Token]) -> None:
    """Put an ON before rules that begin with a mere sign (Cumulus architecture), lest it be taken for a sum's."""
    for at in range(len(tokens) - 2, -1, -1):
        signed = tokens[at].is_sign("+", "-") and tokens[at + 1].is_name and _heads_rule(tokens, at + 2)
        if signed and not (at and tokens[at - 1].is_word("ON")):
            tokens.insert(at, tokens[at]._replace(kind=TokenKind.NAME, text="ON"))


def _relations_ahead(tokens: list[Token]) -> tuple[set[str], set[str]]:
    """Return the relations that the text declares, and those together with the relations of its rules' heads."""
    declared: set[str] = set()
    heads: list[str] = []
    for index, token in enumerate(tokens[:-2]):
        after, next_but_one = tokens[index + 1], tokens[index + 2]
        if not after.is_name:
            continue
        if token.is_word("RELATION") and next_but_one.is_sign("("):
            declared.add(after.text)
        elif (
            (token.is_word("ON") and next_but_one.is_sign("("))
            or token.is_word("BATCH", "INTO")
            or (token.is_word("FROM") and tokens[index - 1].is_word("DELETE"))
            or (token.is_sign("+", "-") and tokens[index - 1].is_word("ON"))
        ):
            heads.append(after.text)
    return declared, declared | {_named_event(name, declared)[1] for name in heads}


def _heads_rule(tokens: list[Token], at: int) -> bool:
    """Whether a bracketed list from `at` on is followed by what begins the body of a rule."""
    if not tokens[at].is_sign("("):
        return False
    while not tokens[at].is_sign(")") and tokens[at].kind is not TokenKind.END:
        at += 1
    return tokens[at].kind is not TokenKind.END and (tokens[at + 1].is_sign("{", ":") or tokens[at + 1].is_word("DO"))
