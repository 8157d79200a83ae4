"""The fleet audit: every partition directory of whole clusters, verified in parallel, replicas compared."""
