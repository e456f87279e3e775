"""Where the clients of a study may compute, but for this process."""
