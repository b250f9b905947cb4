"""Reports: series of results as one HTML page that needs no network.

Input: folders of series, as ``attngen sweep`` writes them. Output: the text of a page.
"""

from attngen.report.page import report_page

__all__ = ["report_page"]
