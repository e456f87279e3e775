"""Features that nothing else imports."""
