"""Machine code on disk: made once per version and processor, by LLVM or Numba, and afterwards loaded without either's
compiler, whose import takes longer than all the rest of a start.
"""
