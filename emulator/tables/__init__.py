"""Tables as native code reads them and Python writes them: rows, hash indexes, action profiles."""
