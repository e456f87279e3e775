"""Any model on any site: opening model files, scoring images."""
