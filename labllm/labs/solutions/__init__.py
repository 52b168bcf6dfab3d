"""The plain solutions, one file each. Deleting this folder gives a hand-out: every check still works."""
