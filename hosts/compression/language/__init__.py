"""CompLL: a small language for codecs, with seven operators, checked types and two back ends (docs/compression.md).

::

    text ─ syntax ─▶ tree ─ types ─▶ typed tree ─▶ program ─ kernels ─▶ NumPy, or native code by Numba
                                        └─ homomorphism: can switches sum its codes?
"""
