"""How chunks and requests travel between neighbours of a ring: by threads and blocking sockets, from slot to slot.

A chunk lies in a *slot* (`slots`): memory that is filled once and then only read, here or, over a local link, by all
processes of the ring in the same pages. Its header changes with every hop, its content is never touched. Chunks go
one way over a link of their own and credits come back on it (`chunk_links`); requests go the other way
(`message_links`), so that they do not queue behind chunks. Nothing here knows what a header, a message or a chunk says.
"""
