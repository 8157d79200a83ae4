"""What is done for each request: values in, values out, no sockets."""
