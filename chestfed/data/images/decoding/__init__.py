"""Decoders of single formats: DICOM pixels, compressed pictures, polarity."""
