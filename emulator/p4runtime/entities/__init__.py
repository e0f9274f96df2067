"""P4Runtime's entities, one kind a module, each between its messages and a switch's memory.

`resolve` binds a whole P4Info to a program once; the others then work by ids that are known to fit.
"""
