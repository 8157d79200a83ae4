"""Old bytes read again within a promised time."""
