"""The native engine: M3 programs as machine code over tables without pointers."""
