"""Maps of a program while it is compiled: their columns, what makes two of them equal, what trusted keys save."""
