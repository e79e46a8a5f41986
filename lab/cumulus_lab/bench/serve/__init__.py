"""What a server costs: rows out and in, look-ups, subscribers, a writer among readers; each beside a do-nothing one.

Server and clients are processes of their own; the clients speak HTTP by the standard library, so that what they cost is
little and known.
"""
