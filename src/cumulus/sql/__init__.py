"""SQL text to bound views and calculus terms."""
