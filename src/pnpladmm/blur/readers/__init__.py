"""One reader a file format, each from arrays to a `Blur`."""
