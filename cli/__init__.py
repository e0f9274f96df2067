"""The `weir` command: `main` has the list, and each further module one command or one group of them."""
