"""In: frames. Out: tables, figures and pages. Nothing computes a statistic."""
