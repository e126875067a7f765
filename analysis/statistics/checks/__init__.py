"""What a careful reader would object to before believing a table."""
