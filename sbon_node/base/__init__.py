"""Used by every package: time, tasks, files, errors in plain words, the local store."""
