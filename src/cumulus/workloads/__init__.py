"""Real and benchmark data as streams of events."""
