"""What a switch has beside the rows on their way: its log, the epochs that are open, and what it does of commits."""
