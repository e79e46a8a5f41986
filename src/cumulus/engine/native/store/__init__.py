"""Maps in memory: hash tables, ordered indexes, texts, the layout of rows. Knows words, not what they mean."""
