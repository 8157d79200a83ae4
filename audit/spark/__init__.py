"""The Spark job: its session, plans, tasks and data source."""
