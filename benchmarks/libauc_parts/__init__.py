"""Parts of libauc_side_by_side.py."""
