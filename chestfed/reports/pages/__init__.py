"""One HTML page about a finished study: read the run folder, draw, fill the template."""
