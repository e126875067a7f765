"""In: a study. Out: a job on a Ray cluster, and tunnels to the cluster's pages."""
