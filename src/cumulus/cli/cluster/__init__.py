"""`cumulus cluster`: one file per subcommand, `command` puts them together."""
