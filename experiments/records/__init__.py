"""Run records: what a run was and did, as files that can be read, shown and replayed."""
