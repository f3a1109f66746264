"""Certificates for people: Markdown and a self-contained HTML page."""

from adaptive_dp.reports.html import report
from adaptive_dp.reports.markdown import markdown

__all__ = ["markdown", "report"]
