"""Hospitals and their files: DICOM, images, sites, collections, checks; no loss and no AUC."""
