"""The command ``sbon``; the Python API is the package :mod:`sbon`."""
