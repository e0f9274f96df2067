"""The compiled program; `python -m weir.p4src.build` makes it anew."""
