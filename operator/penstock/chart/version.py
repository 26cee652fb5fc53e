"""The version of Penstock, which is that of the chart and of the image."""

from importlib.metadata import version

VERSION = version("penstock")
