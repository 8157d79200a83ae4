"""All owned log directories together: topics, the tasks that keep them, and their schedule."""
