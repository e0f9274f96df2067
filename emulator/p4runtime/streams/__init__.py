"""Controllers' streams: the primary of each role, the messages waiting for each client, and their time limits."""
