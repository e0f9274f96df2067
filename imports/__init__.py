"""Loading of modules by name or by path: registries of one kind of thing."""
