"""AUCs with intervals and tests, and the tables of a study; no network."""
