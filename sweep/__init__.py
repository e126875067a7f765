"""Study -> runs -> cohorts -> trials -> record: what to train, where, and what is already done."""
