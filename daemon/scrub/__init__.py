"""Reads old bytes again within a promised time: lists, queues and paces the segments of a log directory."""
