"""The bytes of an append, judged and completed as a leader or a follower writes them."""
