"""What others write and a server follows: the output folders of runs."""
