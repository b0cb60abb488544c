"""Messages that papers add, a file each."""
