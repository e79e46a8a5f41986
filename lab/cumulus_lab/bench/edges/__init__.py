"""What `cumulus bench edges` measures: forms of the same work that one would expect to cost alike."""
