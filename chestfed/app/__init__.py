"""The command line and the Python API."""
