"""Tables, comparisons and timing of a finished run."""
