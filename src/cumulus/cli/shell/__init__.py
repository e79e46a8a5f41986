"""`cumulus shell`: SQL at a prompt, over a warehouse in this process or over the output folder of a run."""
