"""Results of AMD's rocprofv3: databases (`--output-format rocpd`), and JSON."""

from fathom.sounding.rocprof.database import is_rocpd, read_rocpd
from fathom.sounding.rocprof.document import is_document, read_document
