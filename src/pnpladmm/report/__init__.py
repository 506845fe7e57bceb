"""A run as one HTML page and one JSON file; the base of all pages in HTML."""

from pnpladmm.report.certificates import in_words, summarise_certificate
from pnpladmm.report.estimate import write_estimate
from pnpladmm.report.notebook import as_html
from pnpladmm.report.run import Section, figures_of, write_report, write_restoration
from pnpladmm.report.summary import parameters, summarise

__all__ = [
    "Section",
    "as_html",
    "figures_of",
    "in_words",
    "parameters",
    "summarise",
    "summarise_certificate",
    "write_estimate",
    "write_report",
    "write_restoration",
]
