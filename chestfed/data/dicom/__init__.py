"""DICOM: the allow-list of elements, and what a file is before it is read."""
