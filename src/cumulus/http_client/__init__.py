"""The client of a server over HTTP: what `cumulus.connect("http://…")` returns. It knows addresses, never a source."""
