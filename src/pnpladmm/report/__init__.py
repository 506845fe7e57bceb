"""A run as one HTML page and one JSON file; the base of all pages in HTML."""

from pathlib import Path

from pnpladmm.files import write_text
from pnpladmm.report.certificates import in_words, summarise_certificate
from pnpladmm.report.run import Section, figures_of, write_report, write_restoration
from pnpladmm.report.summary import parameters, summarise

# Until the experiments' pages extend the base template.
STYLE = (Path(__file__).parent / "templates" / "style.css").read_text()

__all__ = [
    "STYLE",
    "Section",
    "figures_of",
    "in_words",
    "parameters",
    "summarise",
    "summarise_certificate",
    "write_report",
    "write_restoration",
    "write_text",
]
