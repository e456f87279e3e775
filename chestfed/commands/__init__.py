"""What the command line's commands do: join the parts, show progress, print results."""
