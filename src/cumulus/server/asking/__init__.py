"""SQL of readers: what may run in the process of the server for a moment, and processes for everything else."""
