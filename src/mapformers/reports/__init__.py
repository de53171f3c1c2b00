"""Reports: one table in five formats, figures, and pages; they read results, never models.

A figure is a file of its own, so that a table can be printed without loading what draws.
"""

from mapformers.reports.table import FORMATS, Format, Table

__all__ = ["FORMATS", "Format", "Table"]
