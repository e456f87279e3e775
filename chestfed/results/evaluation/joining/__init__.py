"""Who should join whom: contributions of partners, a gate for joining, power of a study."""
