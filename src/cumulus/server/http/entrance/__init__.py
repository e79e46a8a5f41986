"""The entrance to the application: who is let in, how connections are kept, and what is seen of those who pass."""
