"""A fabric of real processes and packets in Mininet: `fabric` builds it, `processes` ends all of it."""
