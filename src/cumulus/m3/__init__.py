"""M3, the language between the compiler and every host."""
