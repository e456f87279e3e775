"""A hospital in a federation: its policy, its answers, and the record of them."""
