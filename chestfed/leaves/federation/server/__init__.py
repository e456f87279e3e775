"""The server of a federation: members, questions to hospitals, and the study."""
