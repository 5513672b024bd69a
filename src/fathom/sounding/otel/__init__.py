"""Import OpenTelemetry spans of serving engines: requests with their stages."""

from fathom.sounding.otel.importer import read_otel
from fathom.sounding.otel.otlp import is_otlp
