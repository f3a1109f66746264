"""Certificates for people: Markdown and a self-contained HTML page."""

from adaptive_dp.report.html import report
from adaptive_dp.report.markdown import markdown

__all__ = ["markdown", "report"]
