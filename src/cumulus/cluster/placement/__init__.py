"""Where statements are computed, where entries of maps lie, and which node gets which rows."""
