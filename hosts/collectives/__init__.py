"""What a training loop calls: collectives of whole arrays, over one job, groups of its workers, or several shards."""
