"""Run records: configuration and results of a run, as files that can be read, shown and replayed."""
