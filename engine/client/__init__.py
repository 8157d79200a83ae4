"""What commands do with a log: batches of records in, views and explanations out."""
