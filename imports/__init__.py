"""Loading of Python code: optional packages (`extras`), a user's files (`user_files`), and registries of things of one
kind, by module name or by file path (`registry`).
"""
