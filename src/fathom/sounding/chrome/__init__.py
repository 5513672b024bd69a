"""Traces in Chrome's format: those of JAX and XProf (.trace.json.gz), and of any other producer."""

from fathom.sounding.chrome.importer import read_chrome
