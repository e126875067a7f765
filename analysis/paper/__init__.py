"""The tables and figures of Rothermel et al. 2021 by number, with the published values next to ours."""
