"""Which column of a table names the image, the patient, the study, the view, the split, the sex and the age."""
