"""The program that nodes run: written from a spread program, and evaluated."""
