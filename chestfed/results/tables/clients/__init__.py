"""Results by client: contributions of partners, influence on the mean, held-out sites."""
