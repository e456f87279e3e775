"""Label files as they are on disk: encodings, delimiters, workbooks."""
