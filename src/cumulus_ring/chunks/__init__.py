"""The chunks of a storage ring: pieces of immutable Parquet files.

A chunk is some columns of a slice of a row group of a file, and has the same number at every node and in every epoch
(`ids`). The room reads what there is from the footers of the files (`catalogue`; `folders` finds the files), says what
a chunk is on the wire (`encoding`), which row groups the conditions of a query may touch (`zone_maps`), who owns them
(`rendezvous`), and keeps the owner's chunks on its disk (`store`). One process keeps the files of the last versions
(`version_retention`), all others read what it says of them (`versions`). The room knows nothing of nodes, messages or
queries.
"""
