"""How nodes keep spread maps that others feed: one file for each protocol of the papers."""
