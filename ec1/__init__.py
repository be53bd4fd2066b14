"""The domain of EC1. Plain Python: nothing in this package imports Dagster, reads the environment or keeps globals."""
