"""Hosts: whatever keeps the views of a program. All that reads, serves or explores views takes a `Host`.

`host` is the contract, `requests` and `answers` are its values, `selecting` cuts rows out of whole views. The hosts
are a warehouse, the output folder of a run, a running cluster, and a server over HTTP; each is in the room of what it
reads. docs/hosts.md says what each offers.
"""

from cumulus.hosts.answers import Answer, WriteReceipt
from cumulus.hosts.host import ChangeFeed, Host
from cumulus.hosts.requests import LATEST, Freshness, RowRequest, TableRows, WriteRequest

__all__ = [
    "LATEST",
    "Answer",
    "ChangeFeed",
    "Freshness",
    "Host",
    "RowRequest",
    "TableRows",
    "WriteReceipt",
    "WriteRequest",
]
