"""A plan, its certificate and its results for people: drawings, plots, Markdown and an HTML page.

`adaptive_dp.reports.page.report` and `adaptive_dp.reports.markdown.markdown` write a certificate;
`adaptive_dp.reports.drawing.svg` and `adaptive_dp.reports.drawing.mermaid` draw a graph;
`adaptive_dp.reports.plot` has the figures. The page and the figures need the extra ``report``.
"""
