"""Designs of studies, one file each: which studies a pipeline asks for, how they are collected, what they answer."""
