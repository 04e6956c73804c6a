"""Datasets of xarray as rows of Arrow, and rows as datasets."""
