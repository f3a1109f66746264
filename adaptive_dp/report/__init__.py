"""A plan, its certificate and its results for people: drawings, plots, Markdown and an HTML page.

`adaptive_dp.report.page.html` and `adaptive_dp.report.markdown.markdown` write a certificate;
`adaptive_dp.report.drawing.svg` and `adaptive_dp.report.mermaid.mermaid` draw a graph;
`adaptive_dp.report.plot` has the figures. The page and the figures need the extra ``report``.
"""
