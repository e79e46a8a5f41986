"""`cumulus ring`: starting a ring of processes and asking it; `command` puts the subcommands together."""
