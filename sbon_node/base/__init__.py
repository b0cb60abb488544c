"""What every package may use: time, tasks, files, errors in plain words, the local store."""
