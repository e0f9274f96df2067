"""Decision forests as table entries of a switch: `forest` is a model as data and as a file, `table_entries` are its
rows in a switch, `loading` replaces one model by another, and `models` are those of a controller's switches.
"""
