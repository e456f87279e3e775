"""One reader per published data set."""
