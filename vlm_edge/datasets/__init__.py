"""Datasets: folders of pictures through the same core, without HTTP."""
