"""One group of the classic protocol: who is a member, which generation it is in, and how it rebalances."""
