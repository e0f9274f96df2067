"""The flow-level simulator."""
