"""The evaluation."""
