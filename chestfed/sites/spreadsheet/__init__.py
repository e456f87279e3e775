"""The reader of a hospital's own table: 'reader: table'."""
