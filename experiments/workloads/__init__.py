"""What a run's workers train: `digits`, the demo's, or a `script` of one's own."""
