"""What a run's workers train."""
