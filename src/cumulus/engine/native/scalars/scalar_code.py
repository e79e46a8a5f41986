"""SQL scalars in the kernel.

Comparisons and logic are code of their own, as are `cumulus.engine.native.scalars.arithmetic` and what
`cumulus.engine.native.scalars.text_functions` has for texts. Every other function is Python's: its arguments and its
value travel as words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cumulus.algebra.terms import Apply, Cast, Compare, Const, Term, Var
from cumulus.catalog.types import BOOLEAN, DOUBLE, Kind, SqlType
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import NotNativeError, Scalar, any_null, bits_of, kernel_type
from cumulus.engine.native.kernel.language import F64, FALSE, I64
from cumulus.engine.native.scalars.arithmetic import Arithmetic, CallWriter, Fixed, is_exact
from cumulus.engine.native.scalars.logic import COMPARED_BY_PYTHON, Comparisons, Conditionals
from cumulus.engine.native.scalars.python_functions import Callee
from cumulus.engine.native.scalars.text_functions import TextFunctions
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import COMPARISONS
from cumulus.scalars.registry import FUNCTIONS, result_type
from cumulus.scalars.user import UserFunction

_DIVISIONS = ("div", "intdiv", "mod")


class ScalarEmitter:
    """Writes the code of scalars into one function.

    Parameters
    ----------
    lookup
        Gives the value of a variable.
    leaf
        Gives the value of a node that is no scalar by itself.
    """

    def __init__(
        self, body: Body, writer: CallWriter, lookup: Callable[[str], Scalar], leaf: Callable[[Term], Scalar]
    ) -> None:
        self.arithmetic = Arithmetic(body, writer)
        self.comparisons = Comparisons(self.arithmetic, texts := TextFunctions(self.arithmetic))
        self._texts, self._conditionals = texts, Conditionals(self.arithmetic, self.code)
        self._body, self._writer = body, writer
        self._lookup = lookup
        self._leaf = leaf

    def code(self, term: Term) -> Scalar:
        """Write the computing of a scalar; return it."""
        match term:
            case Const(value, sql_type):
                return self.arithmetic.literal(value, sql_type)
            case Var(name):
                return self._lookup(name)
            case Apply(function, args):
                return self._apply(function, args)
            case Cast(arg, target):
                return self.arithmetic.cast(self.code(arg), target)
            case Compare(op, left, right):
                return Scalar(BOOLEAN, self.comparisons.compare(op, self.code(left), self.code(right)))
            case _:
                return self._leaf(term)

    # --- functions --------------------------------------------------------------------------------------------------

    def _apply(self, function: str, args: tuple[Term, ...]) -> Scalar:
        match function:
            case "and" | "or":
                return self._conditionals.connective(function, args)
            case "not":
                inner = self.arithmetic.cast(self.code(args[0]), BOOLEAN)
                return Scalar(BOOLEAN, ~inner.value, inner.null)
            case "is_null":
                found = self.code(args[0]).null
                return Scalar(BOOLEAN, FALSE if found is None else found)
            case "try":
                return self._try(args[0])
        user = self._writer.user_function(function)
        if user is not None:
            return self._users(user, args)
        if function in ("case", "if", "coalesce"):
            return self._conditionals.chosen(function, args)
        codes = [self.code(arg) for arg in args]
        if function in COMPARISONS:
            value = self.comparisons.holds(COMPARISONS[function], codes[0], codes[1])
            return Scalar(BOOLEAN, value, any_null(codes))
        literals = [arg.value if isinstance(arg, Const) else None for arg in args]
        fixed = [f"{arg.type} {arg.value!r}" if isinstance(arg, Const) else None for arg in args]
        return self.call(function, codes, literals, fixed)

    def call(
        self, function: str, codes: list[Scalar], literals: Sequence[Any] = (), fixed: Fixed | None = None
    ) -> Scalar:
        """Write a call of a function of the dialect; for `fixed` see `CallWriter.call`."""
        if function not in FUNCTIONS:
            raise NotNativeError(f"the function {function}, of which nothing is known")
        definition = FUNCTIONS[function]
        types = tuple(code.type for code in codes)
        result = result_type(function, types, literals)
        if function in ("add", "sub", "mul", "neg") and all(is_exact(code.type) for code in codes):
            return self.arithmetic.exact_arithmetic(function, codes, result)
        if function in ("add", "sub", "mul") and result == DOUBLE:
            return self.arithmetic.float_arithmetic(function, codes)
        codes = [self.arithmetic.cast(code, to) for code, to in zip(codes, definition.arguments(types), strict=True)]
        time = self._timed(function, codes, result)
        if time is not None:
            return time
        summed = self.arithmetic.summed_float(function, codes)
        if summed is not None:
            return summed
        text = self._texts.call(function, codes, result)
        if text is not None:
            return text
        if function == "in" and all(code.type.kind not in {*COMPARED_BY_PYTHON, Kind.NULL} for code in codes):
            return self.comparisons.in_list(codes, literals)
        if function in _DIVISIONS and all(is_exact(code.type) or code.type.is_float for code in codes):
            return self._divided(function, codes, result, fixed)
        return self.arithmetic.call_python(Callee(function), codes, result, strict=definition.strict, fixed=fixed)

    def _timed(self, function: str, codes: list[Scalar], result: SqlType) -> Scalar | None:
        """Write a function of times, if there is code for it; what is beyond its words is left to Python."""
        written = self.arithmetic.times.function(function, codes, result)
        if written is None:
            return None
        found, beyond = written
        if beyond is None:
            return found
        value = self._body.let(found.value, "time")
        with self._body.when(beyond, likely=False):
            self.arithmetic.set_by_python(value, Callee(function), codes, result, is_rare=True)
        return replace(found, value=value)

    def _divided(self, function: str, codes: list[Scalar], result: SqlType, fixed: Fixed | None) -> Scalar:
        """Write a division; what is divided by 0 or -1, and what is wide, is left to Python."""
        body = self._body
        if result == DOUBLE and function != "mod":
            left, right = (self.arithmetic.as_float(code).value for code in codes)
            is_plain = right.ne(0.0)
        elif all(code.type.is_integer and code.value.type is I64 for code in codes) and kernel_type(result) is I64:
            left, right = (code.value for code in codes)
            is_plain = right.ne(0) & right.ne(-1)
        else:
            return self.arithmetic.call_python(Callee(function), codes, result, strict=True, fixed=fixed)
        value, unknown = body.local(left.type, "quotient"), any_null(codes)
        body.set(value, 0)
        with self.arithmetic.unless_null(codes):
            with body.when(is_plain, likely=True):
                body.set(
                    value, left / right if left.type is F64 else left % right if function == "mod" else left // right
                )
            with body.otherwise():
                self.arithmetic.set_by_python(value, Callee(function), codes, result, is_rare=True)
        return Scalar(result, value, unknown, bits_of(result))

    def _users(self, user: UserFunction, args: tuple[Term, ...]) -> Scalar:
        signature = user.signature
        if len(args) != len(signature.parameters):
            raise ValidationError(f"{signature.name} takes {len(signature.parameters)} arguments, not {len(args)}")
        codes = [self.arithmetic.cast(self.code(arg), to) for arg, to in zip(args, signature.parameters, strict=True)]
        return self.arithmetic.call_python(
            Callee(user.name, is_user=True), codes, signature.result, strict=not signature.called_with_null
        )

    def _try(self, arg: Term) -> Scalar:
        with self.arithmetic.attempt() as outcome:
            found = self.code(arg)
        failed = outcome()
        if failed is None:
            return found
        return replace(found, null=failed if found.null is None else failed | found.null)
