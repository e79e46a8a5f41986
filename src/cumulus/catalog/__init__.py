"""What the data is: types, relations and their keys, events."""

from cumulus.catalog.events import DELETE, INSERT, UPSERT, Event, Row
from cumulus.catalog.schema import Column, ForeignKey, Relation
from cumulus.catalog.types import SqlType

__all__ = ["DELETE", "INSERT", "UPSERT", "Column", "Event", "ForeignKey", "Relation", "Row", "SqlType"]
