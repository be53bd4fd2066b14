"""Training corpora: tuples, buckets, snapshots, cleaning, split and the datasets that training reads."""
