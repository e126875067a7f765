"""Record -> selection -> aggregates -> tables, figures, report. Imports neither torch nor ray."""
