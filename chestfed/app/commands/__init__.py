"""The commands of the command line, one file each: its signature, then what it does.

The files are imported for every `--help`, so that heavy imports wait inside the functions.
"""
