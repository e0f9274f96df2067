"""Loading of training data: caches of samples on disk and in memory, shared by the ranks of a host."""
