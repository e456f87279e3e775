"""A hospital's own table: its form in the site's YAML, its code book, and how it becomes rows."""
