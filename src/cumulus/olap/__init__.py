"""Cubes: selections by levels of dimensions, put together from parts of maps, wherever these are."""

from cumulus.hosts.requests import Freshness
from cumulus.olap.changes import SelectionChanges, SelectionStream
from cumulus.olap.conditions import Like, like
from cumulus.olap.explain import CubeExplanation
from cumulus.olap.question import Having, Question, Top
from cumulus.olap.selection import Selection, selection_of
from cumulus.olap.shape import Axis, CubeShape, Dimension, KeptLevel, Measure, Member
from cumulus.olap.source import Answered, CubeSource, FoldedSource

__all__ = [
    "Answered",
    "Axis",
    "CubeExplanation",
    "CubeShape",
    "CubeSource",
    "Dimension",
    "FoldedSource",
    "Freshness",
    "Having",
    "KeptLevel",
    "Like",
    "Measure",
    "Member",
    "Question",
    "Selection",
    "SelectionChanges",
    "SelectionStream",
    "Top",
    "like",
    "selection_of",
]
