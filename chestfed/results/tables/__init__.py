"""What a finished run holds: tables, comparisons, timing."""
