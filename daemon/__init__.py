"""The log engine as a service: log directories, topics, schedules; the place for clocks and threads."""
