"""The mark that a run's worker and all that it starts bear in their environment, by which leftovers are found."""

LIVING_RUN = "EC1_RUN"
"""Its value is the run's id."""
