"""The kernel language: typed statements over words, as LLVM IR and as machine code. Knows no SQL."""
