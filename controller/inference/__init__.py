"""Decision forests as table entries of a switch: `forest` is a model as data and as a file, `table_entries` are its
rows in a switch, and `models` are those of a controller's switches.
"""
