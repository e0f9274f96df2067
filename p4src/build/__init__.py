"""The compiled program; `python -m p4src.build` makes it anew."""
