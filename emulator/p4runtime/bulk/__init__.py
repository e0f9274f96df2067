"""Large writes of plain table entries, read from their bytes by native code."""
