"""The keys of a grouping: scalars, and the variables of the calculus that they are."""

from __future__ import annotations

from collections.abc import Iterable

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Cast, Const, Lift, Scalar, Term, Var, children, rebuild
from cumulus.catalog.types import INTEGER_BITS
from cumulus.scalars.partial_functions import in_its_type
from cumulus.scalars.typing import Typed
from cumulus.sql.binding.branches import BranchScope
from cumulus.sql.binding.scope import Scope


class Keys:
    """The keys of a grouping: scalars and the variables that they are.

    `last` has what a scalar means of which there are several keys: the last of them, as in DuckDB.
    """

    def __init__(self, scope: Scope, branches: list[BranchScope]) -> None:
        self.scope = scope
        self.branches = branches
        self.names: dict[Scalar, str] = {}
        self.last: dict[Scalar, Scalar] = {}

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables, in order."""
        return tuple(dict.fromkeys(self.names.values()))

    def add(self, scalar: Scalar, name: str = "") -> None:
        """Make a scalar a key: a column is its own, anything else is lifted."""
        scalar = self.plain(scalar)
        if scalar in self.names or not variables_of(scalar):
            return
        if isinstance(scalar, Var):
            self.names[scalar] = scalar.name
            return
        wanted = name if name.isidentifier() else f"key_{len(self.names) + 1}"
        self.names[scalar] = self.scope.new_variable(wanted, "key", self.scope.typed(scalar))

    def column(self, scalar: Scalar, name: str, *, alike: bool) -> Scalar:
        """Return a scalar as a column that is told from those of the same value.

        Parameters
        ----------
        alike
            The scalar itself means this column, unless a later one takes its place.
        """
        wanted = name if name.isidentifier() else "column"
        variable = self.scope.new_variable(wanted, "of", self.scope.typed(scalar))
        for within in self.branches:
            within.branch.values[variable] = within.scalar(scalar)
        if alike:
            self.last[scalar] = Var(variable)
        return Var(variable)

    def plain(self, scalar: Scalar) -> Scalar:
        """Return a scalar as it stands among the keys: a column under a cast is another's variable, in a wider type.

        Any other cast may make one value of several, and is a key of its own.
        """
        if isinstance(scalar, Cast) and any(scalar in table.columns.values() for table in self.scope.tables):
            narrow, wide = self.scope.typed(scalar.arg).type.kind, scalar.type.kind
            if INTEGER_BITS.get(narrow, 1 << 10) <= INTEGER_BITS.get(wide, 0):
                return scalar.arg
        return scalar

    def after(self, scalar: Scalar) -> Scalar:
        """Return a scalar over rows as it is once they are grouped: over the variables of keys, where it has some."""
        scalar = self.last.get(scalar, scalar)
        if scalar in self.names:
            return Var(self.names[scalar])
        found: Scalar = rebuild(scalar, self.after) if children(scalar) else scalar
        return found

    def set_apart(self, scalars: Iterable[Scalar]) -> None:
        """Give keys that are NULL in some grouping set a variable that no atom binds, and that may be NULL."""
        for scalar in scalars:
            name = self.names[scalar]
            typed = Typed(self.scope.variables[name].type, True)
            if isinstance(scalar, Var) and name == scalar.name:
                self.names[scalar] = self.scope.new_variable(name, "key", typed)
            else:
                self.scope.variables[name] = typed

    def shown(self, scalar: Scalar) -> Scalar:
        """Return the variable of a key, or the constant that it is."""
        if scalar in self.names:
            return Var(self.names[scalar])
        if isinstance(scalar, Cast) and scalar.arg in self.names:
            return Cast(Var(self.names[scalar.arg]), scalar.type)
        return scalar

    def lifts(self, within: BranchScope, without: Iterable[Scalar] = ()) -> list[Term]:
        """Return what binds the keys in a branch; those in `without` are NULL."""
        absent = set(without)
        factors: list[Term] = []
        for scalar, variable in self.names.items():
            here = within.scalar(scalar)
            if scalar in absent:
                factors.append(Lift(variable, Const(None, self.scope.variables[variable].type)))
            elif here is not Var(variable):
                factors.append(Lift(variable, in_its_type(here, self.scope.variables)))
        return factors
