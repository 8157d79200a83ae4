"""What was kept, what was lost, and how it is put back."""
