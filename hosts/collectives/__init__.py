"""The collectives of training loops: whole arrays, over one job, groups of its workers, or several shards."""
