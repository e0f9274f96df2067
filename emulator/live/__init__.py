"""A fabric whose time is the wall clock's, and which exchanges frames with processes by shared memory."""
