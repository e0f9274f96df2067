"""The compiled program; `python -m weir.p4src.build` rebuilds it."""
