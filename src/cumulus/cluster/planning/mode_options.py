"""What a mode may do otherwise, each by the name that it has in the papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cumulus.cluster.mode import Mode
from cumulus.errors import UsageError

MOST_MS = 10_000
"""More than anybody waits for."""


@dataclass(frozen=True, slots=True)
class ModeOptions:
    """The options of a cluster.

    Parameters
    ----------
    bypass
        Whether what does not read the maps that a waiting PUT writes overtakes it.
    buffer_ms
        For how long nodes collect what they have to send; 0 for not at all.
    per_depth
        Whether that is for maps of depth 0, and for others that time times their depth, counted from 1.
    compress
        Whether entries are compressed on their way between nodes.
    elide_push
        Whether nodes keep what they have fetched, and are sent only what has changed.
    wait_ms
        For how long who computes waits for PUSHes that may be elided, at most; 0 for not at all.
    patience_ms
        For how long what reads maps waits for what has earlier versions; 0 for not at all.
    elide_put
        Whether who computes is told so by those that send it something, and not by the switch.
    look_ahead
        Whether entries that a node asks for again are sent to it as soon as they change.
    elide_fetch
        Whether nodes find in rows to whom they send what.
    """

    bypass: bool = False
    buffer_ms: int = 0
    per_depth: bool = False
    compress: bool = False
    elide_push: bool = False
    wait_ms: int = 0
    elide_put: bool = False
    elide_fetch: bool = False
    patience_ms: int = 0
    look_ahead: bool = False

    @property
    def tick_ms(self) -> int:
        """How often nodes must hear that time has passed, in milliseconds; 0 for never.

        What waits for some time does so between two ticks, so it waits for half of the time at least.
        """
        times = [self.buffer_ms, *(-(-each // 2) for each in (self.wait_ms, self.patience_ms))]
        return min(filter(None, times), default=0)

    def ticks(self, milliseconds: int) -> int:
        """Return how many ticks such a time has.

        Examples
        --------
        >>> [ModeOptions(wait_ms=each).ticks(each) for each in (1, 2, 3, 20)]
        [1, 2, 2, 2]
        """
        return -(-milliseconds // self.tick_ms) if milliseconds else 0


@dataclass(frozen=True, slots=True)
class OptionRule:
    """An option as the user writes it.

    Parameters
    ----------
    modes
        Which take it.
    does
        What it does, as a clause.
    source
        Where it is from.
    value
        What stands behind its "=", as the help says it, with "|" between the possible ones; "" for nothing.
    needs
        An option that is given with it; "" for none.
    excludes
        Options that are not taken with it, each with why.
    """

    modes: tuple[Mode, ...]
    does: str
    source: str
    value: str = ""
    needs: str = ""
    excludes: Mapping[str, str] = field(default_factory=dict)

    def written(self, name: str) -> str:
        """Return how the option of a name is written."""
        return " or ".join(f"{name}={each}" for each in self.value.split("|")) if self.value else name


OPTIONS: Mapping[str, OptionRule] = {
    "bypass": OptionRule(
        (Mode.FOUR_LOGS,),
        "a message overtakes a PUT that waits, unless it reads what that writes",
        "semester paper, section 3.5",
    ),
    "buffer": OptionRule(
        (Mode.EVENTUAL,),
        "nodes collect deltas for so many milliseconds before they send them",
        "consistency paper, section 4.2; semester paper, section 3.5",
        "MS",
    ),
    "per-depth": OptionRule(
        (Mode.EVENTUAL,),
        "deltas of deeper maps are collected for longer: MS times the depth, counted from 1",
        "consistency paper, section 6",
        needs="buffer",
    ),
    "compress": OptionRule(
        (Mode.EVENTUAL, Mode.CENTRAL_TARGET, Mode.CENTRAL_SOURCE, Mode.FOUR_LOGS),
        "entries are compressed on their way between nodes",
        "semester paper, section 3.5, map compression",
    ),
    "elide-push": OptionRule(
        (Mode.FOUR_LOGS,),
        "nodes keep what they have fetched and are sent only changes; they go on at once, or after MS, and correct",
        "semester paper, section 3.5, PUSH optimization",
        "correct|wait:MS",
    ),
    "elide-put": OptionRule(
        (Mode.FOUR_LOGS,),
        "no PUTs: nodes that send entries say what is to be computed from them, and all goes on meanwhile",
        "semester paper, section 3.5, PUT optimization",
        excludes={"elide-push": "a block comes with a PUSH, so none can be left out"},
    ),
    "elide-fetch": OptionRule(
        (Mode.FOUR_LOGS,),
        "a FETCH has rows, and no reference to who is sent what: nodes know where maps lie",
        "semester paper, sections 3.2 and 3.5, FETCH optimization",
    ),
    "patience": OptionRule(
        (Mode.EVENTUAL, Mode.FOUR_LOGS),
        "what reads a map waits MS times its depth, counted from 1, for what has earlier versions",
        "semester paper, section 6, timing assumptions and rounds",
        "MS",
    ),
    "look-ahead": OptionRule(
        (Mode.FOUR_LOGS,),
        "what changes in entries that a node asks for again is sent to it at once, until the next commit",
        "semester paper, section 3.5, look ahead",
        needs="elide-push",
    ),
}
OPTION_HELP = (
    "What the mode does otherwise, such as buffer=20; with commas, repeatable. `cluster plan --options` lists them."
)


def options_of(mode: Mode, texts: Iterable[str]) -> ModeOptions:
    """Return the options that a user has written, one by one or with commas between them.

    Raises
    ------
    UsageError
        If there is none of that name, the mode does not take it, or its value is none.

    Examples
    --------
    >>> found = options_of(Mode.EVENTUAL, ["buffer=20,compress"])
    >>> found.buffer_ms, found.compress, found.bypass
    (20, True, False)
    """
    given: dict[str, str] = {}
    found: dict[str, int | bool] = {}
    for text in (each for texts_of_one in texts for each in texts_of_one.split(",")):
        name, equals, value = text.partition("=")
        rule = OPTIONS.get(name)
        if rule is None:
            raise UsageError(f"there is no option {name!r}", hint=f"Options: {', '.join(OPTIONS)}.")
        if mode not in rule.modes:
            raise UsageError(
                f"--mode {mode} has no option {name}", hint=f"It is of --mode {', '.join(rule.modes)}; leave it out."
            )
        if bool(equals) != bool(rule.value):
            written = rule.written(name)
            raise UsageError(f"--option {text}: it is written {written}", hint=f"Give --option {written}.")
        if given.setdefault(name, text) != text:
            told = f"--option {given[name]} and --option {text}: only one can hold"
            raise UsageError(told, hint="Give one of the two options.")
        found |= _values(name, text, value, rule)
    _check_together(given)
    return ModeOptions(**found)  # type: ignore[arg-type]


def _values(name: str, text: str, value: str, rule: OptionRule) -> dict[str, int | bool]:
    """Return what an option sets, of `ModeOptions`."""
    forms = rule.value.split("|")
    if forms == ["MS"]:
        return {f"{name}_ms": _milliseconds(text, value)}
    found: dict[str, int | bool] = {name.replace("-", "_"): True}
    form, _, number = value.partition(":")
    if f"{form}:MS" in forms:
        return {**found, f"{form}_ms": _milliseconds(text, number)}
    if value not in forms:
        raise UsageError(f"--option {text}: {value!r} is nothing that it does", hint=f"Give {rule.written(name)}.")
    return found


def _check_together(given: Mapping[str, str]) -> None:
    """Check that options go with each other; UsageError if one excludes another, or needs one that is not given."""
    for name, text in given.items():
        if (needed := OPTIONS[name].needs) and needed not in given:
            written = OPTIONS[needed].written(needed)
            raise UsageError(f"--option {text} is nothing without {written}", hint=f"Add --option {written}.")
        for other, why in OPTIONS[name].excludes.items():
            if other in given:
                raise UsageError(
                    f"--option {text} and --option {given[other]}: {why}", hint="Give one of the two options."
                )


def _milliseconds(text: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 0 < int(value[:6]) <= MOST_MS and len(value) < 6):
        raise UsageError(
            f"--option {text}: {value!r} is no number of milliseconds", hint=f"Give one of 1 to {MOST_MS}."
        )
    return int(value)
