"""Claims that a stranger can check: bundles of a study's record, and challenges that train some of its runs again."""
